"""Other people's systems that few applications speak to: OpenTelemetry collectors, Ray clusters, Sparkplug hosts."""
