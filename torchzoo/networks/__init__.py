"""What several model folders share: parts of networks, and how they are made."""
