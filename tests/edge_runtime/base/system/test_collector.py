import gc

from edge_runtime.base.system.collector import tune_collector


def test_what_is_loaded_is_left_out_and_searches_are_rare() -> None:
    before = gc.get_threshold()
    try:
        tune_collector()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == (50_000, *before[1:])
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
