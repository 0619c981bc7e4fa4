"""Stories, the lakes that they are told to, and what is looked at in a lake afterwards."""
