"""A run that is spread over several hosts: what each host does, who has which case, and the engines that carry it."""
