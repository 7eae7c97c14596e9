"""From a request to records: the plan, the machine's lanes, the scheduler and the worker processes."""
