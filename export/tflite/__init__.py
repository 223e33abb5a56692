"""The TensorFlow Lite writer: `export.to_tflite` is its front door.

One module per kind of operator (`convolutions`, `dense`, `pools`, `elementwise`, `reductions`, `moves`), on top of what
the graph knows (`graph`, `values`), what is rewritten before anything is written (`prepare`, `patterns`, `lower`,
`recurrent`), and the file format (`file`, `versions`).
"""
