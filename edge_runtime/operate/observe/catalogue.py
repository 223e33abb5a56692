"""Catalogue of metrics: a help text for each name that the runtime counts; a test finds those without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

DROPPED: Final = "dropped_total"
STAGE: Final = "stage_seconds"

DESCRIPTIONS: Final[Mapping[str, str]] = {
    # -- what arrives
    "messages_total": "Messages that arrived, refused ones included.",
    "message_bytes_total": "Bytes of their payloads.",
    "readings_total": "Readings decoded from messages.",
    "samples_total": "Samples taken into windows' grids.",
    "undated_total": "Messages without a stamp, stamped when they arrived.",
    "values_refused_total": "Values of channels that could not be read, while others of their messages could.",
    "source_reopens_total": "Times a source was opened again after an error.",
    "recordings_unused_total": "Recordings that gave no reading.",
    "foreign_messages_total": "Messages and readings of keys that belong to another worker or machine.",
    "connected": "Whether the broker is connected, 1 or 0.",
    # -- windows
    "windows_total": "Windows completed.",
    "gaps_total": "Gaps at which the window of a key began again.",
    "clock_jumps_total": "Jumps of a key's clock that were accepted.",
    "keys_evicted_total": "Keys that left for newer ones.",
    "window_restarts_total": "Keys whose begun window was given up, for a new model or a lost file.",
    "suspect_keys_total": "Keys whose readings became suspect, by reason.",
    "suspect_windows_total": "Windows with suspect readings, by reason.",
    "suspect_keys": "Keys whose readings are suspect now, by reason.",
    "drift_alarms_total": "Alarms of drift that began, by cause.",
    "drift_alarms": "Alarms of drift that are on, by cause.",
    # -- answers
    "predictions_total": "Answers given by the device, unanswered windows included.",
    "hard_total": "Answers that the gate does not trust.",
    "warmup_total": "Windows without an answer while a chain of models fills.",
    "unanswered_total": "Windows that nothing on the device could answer.",
    "events_total": "Events that began or ended.",
    "event_keys_evicted_total": "Keys whose open events were given up for newer keys.",
    "over_time_keys_evicted_total": "Keys whose answers before were forgotten for newer keys.",
    "threshold_keys_evicted_total": "Keys whose learnt threshold was given up for newer keys.",
    "gate_keys_evicted_total": "Keys whose threshold of the gate was given up for newer keys.",
    "gate_share_ratio": "Share of hard windows that is kept of each key, where the gate's thresholds move.",
    "gate_threshold": "Lowest and highest threshold of the gate over the keys, where it moves.",
    "gate_hard_ratio": "Lowest and highest share of hard windows over the keys, of the last 1,000 of each.",
    "state_resets_total": "Keys whose model states began again, by reason.",
    "cache_hits_total": "Windows answered from the cache, by how they matched.",
    "cache_misses_total": "Windows that the cache did not know.",
    "explanations_total": "Hard cases explained.",
    "explanations_skipped_total": "Hard cases left unexplained for want of time.",
    "topics_sanitised_total": "Topics that had to be changed, since a value held what no topic may.",
    "sparkplug_births_total": "Births of the Sparkplug edge node, those asked for by a host included.",
    "sparkplug_coalesced_total": "Predictions not published by Sparkplug, since a newer one took their place in time.",
    "sink_waiting_answers": "Answers that a sink has not handed over yet.",
    "sink_stalled_seconds": "Seconds since a sink took its last answer, while it takes none; else 0.",
    "sink_dropped_total": "Answers that a sink dropped, by reason.",
    "jsonl_errors_total": "Writes to a file of answers that failed.",
    "webhook_requests_total": "Requests that a webhook took.",
    "webhook_failures_total": "Requests to a webhook that failed and are sent again.",
    "cases_kept_total": "Windows kept for people to look at.",
    "cases_passed_over_total": "Windows that were not kept, since enough were kept in that minute.",
    "cases_lost_total": "Windows that the disk of the kept cases did not take.",
    # -- model
    "failovers_total": "Changes of the backend that answers, by direction.",
    "model_fallback_level": "Position of the backend that answers in the fallback chain, 0 is the first.",
    "model_fallback_level_limit": "Lightest backend that the governor asks for, 0 is the first.",
    "model_nodes_accelerated": "Graph nodes that run on the accelerator.",
    "model_nodes_on_cpu": "Graph nodes that run on the CPU beside an accelerator.",
    # -- cloud
    "audit_total": "Trusted answers that were sent to be checked.",
    "audit_agreed_total": "Checked answers that the cloud agreed with.",
    "agreement_ratio": "Share of answers that the cloud agrees with, by kind of answer; an estimate of the accuracy.",
    "agreement_low_ratio": "Lower end of its 95 % interval.",
    "agreement_high_ratio": "Upper end of its 95 % interval.",
    "cloud_requests_total": "Requests to the cloud.",
    "cloud_cases_total": "Cases in these requests, repeated ones included.",
    "cloud_bytes_total": "Bytes of their bodies.",
    "cloud_failures_total": "Requests that failed and are tried again.",
    "cloud_rejected_total": "Cases that the cloud refused for good.",
    "cloud_reachable": "Whether the last request reached the cloud, 1 or 0.",
    "corrections_total": "Corrections published.",
    "late_total": "Corrections that came after their case's deadline.",
    "final_total": "Hard cases closed without a correction.",
    "cases_repeated_total": "Cases offered again that were accepted before.",
    "outbox_accepting": "Whether the outbox takes cases, 1 or 0.",
    "outbox_queued": "Cases that wait for the cloud.",
    "outbox_dead": "Dead letters.",
    "outbox_used_bytes": "Bytes in use in the outbox's file.",
    "outbox_oldest_seconds": "Age of the oldest case that waits.",
    # -- state
    "reading_log_durable": "Whether readings are on the disk before they are acknowledged, 1 or 0.",
    "reading_log_commits_total": "Commits of the reading log.",
    "reading_log_iterations_total": "Iterations of the loop in these commits.",
    "reading_log_bytes_total": "Bytes written to the reading log.",
    "reading_log_snapshots_total": "Snapshots in the reading log.",
    "reading_log_skipped_total": "Readings that the reading log could not keep.",
    "replayed_readings_total": "Readings replayed from the reading log at the start.",
    # -- board
    "governor_level": "Steps down that are in force.",
    "governor_steps_down_total": "Steps down that the governor took.",
    "governor_steps_up_total": "Steps up that the governor took.",
    "temperature_celsius": "Highest temperature of the board.",
    "power_watts": "Power that the board draws.",
    "energy_joules": "Energy that the board used since the start.",
    "joules_per_inference": "Energy of the whole board for one answer, over the last minute.",
    "battery_percent": "Charge of the emptiest battery.",
    "throttled": "Whether the board says that it is held back, 1 or 0.",
    "sensor_failures_total": "Board sensors that gave nothing or nothing possible.",
    # -- updates
    "updates_swapped_total": "Bundles put into service for a trial.",
    "updates_installed_total": "Bundles that passed their trial.",
    "updates_rolled_back_total": "Bundles that were taken back.",
    "updates_refused_total": "Announcements, files and keys that were refused.",
    "update_fetch_failures_total": "Downloads that failed and are tried again.",
    "update_key_rotations_total": "Changes of the trusted keys.",
    # -- Home Assistant
    "home_assistant_keys": "Keys that Home Assistant is shown.",
    "home_assistant_retired_total": "Keys that were taken out of Home Assistant.",
    "home_assistant_commands_total": "Commands from Home Assistant that were obeyed.",
    # -- edge-runtime serve
    "serve_answers_total": "Requests answered, by HTTP status.",
    "serve_batches_total": "Calls of a model; windows divided by them is the mean batch.",
    "serve_windows_total": "Windows answered.",
    "serve_model_failures_total": "Calls of a model that failed.",
    "serve_connections_refused_total": "Connections turned away at a limit.",
    "serve_connections_dropped_total": "Connections ended by silence, slowness or a failed TLS handshake.",
    "serve_connections_evicted_total": "Connections closed for a newcomer, or for memory.",
    "serve_sequences_evicted_total": "Sequences of a model with states that were ended to make room for a new one.",
    "serve_connections": "Connections that are open.",
    # -- workers
    "workers": "Workers that should run.",
    "worker_up": "Whether the worker runs and is ready, 1 or 0.",
    "worker_restarts_total": "Times a worker ended unasked and was started again.",
    # -- the process
    "side_channel_errors_total": "Unexpected errors outside the stream; inference went on.",
    "build_info": "Version of the runtime, and the model that answers.",
    "uptime_seconds": "Time since the application was built.",
    "process_cpu_seconds_total": "CPU time of this process.",
    "process_resident_bytes": "Resident memory of this process.",
    "process_open_files": "Open file descriptors of this process.",
    "otlp_exports_total": "Requests that a collector took, by signal.",
    "otlp_failures_total": "Requests to a collector that failed or were refused, by signal.",
    "otlp_dropped_total": "Spans and data points that no collector took, by reason.",
    "observers": "Connections of watchers, browsers and scrapers.",
    DROPPED: "Messages, samples, windows, cases and answers not used, by reason.",
    STAGE: "Time spent on a window or message, by stage of its way.",
}


_UNITS: Final = {"seconds": "s", "bytes": "By", "celsius": "Cel", "watts": "W", "joules": "J", "percent": "%"}


def unit_of(name: str) -> str:
    """Return the unit of a metric as UCUM (https://ucum.org) writes it; empty for what is counted."""
    return _UNITS.get(name.removesuffix("_total").rpartition("_")[2], "")


def described(name: str) -> str:
    """Return the help text of a metric, without prefix and labels."""
    return DESCRIPTIONS.get(name, "")
