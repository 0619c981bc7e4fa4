"""The source `capture_files`: a folder of files with one record per line.

Knows no other source. `component` creates it.
"""
