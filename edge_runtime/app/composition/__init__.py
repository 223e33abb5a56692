"""Parts of an application that are composed of several rooms; `edge_runtime.app.application` puts them together."""
