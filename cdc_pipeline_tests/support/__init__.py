"""Code that test modules share. They import it from here, never from one another."""
