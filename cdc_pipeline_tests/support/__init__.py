"""What test modules share. They import it from here, and never from one another."""
