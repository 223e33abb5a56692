"""TensorFlow Lite writer; `edge_export.tflite.convert` is its entry.

One module per kind of operator (`convolutions`, `dense`, `pools`, `elementwise`, `reductions`, `moves`), on top of what
the graph knows (`graph`, `values`, `watch`), what is rewritten before anything is written (`prepare`, `functions`,
`patterns`, `signed`, and `lower` with `formulas`, `recurrent`, `resizing`, `selections`, `spectra`), and the file
format (`file`, `limits`, `versions`).
"""
