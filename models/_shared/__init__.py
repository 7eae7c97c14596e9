"""Parts of networks, and ways to build and train them, that several model folders share."""
