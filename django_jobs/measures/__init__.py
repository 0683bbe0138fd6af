"""What the queue did and does, as numbers, for the pages and for whoever measures."""
