"""What tests start beside themselves: a webserver, a browser, a cluster, clients of a broker."""
