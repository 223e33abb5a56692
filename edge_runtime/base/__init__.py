"""The machine and the wire formats: files, processes, threads, HTTP, the Open Inference Protocol, pictures and sound.

Imports the ground alone.
"""
