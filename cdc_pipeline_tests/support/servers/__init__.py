"""Processes that tests start (webserver, browser, Spark cluster) and clients of a broker."""
