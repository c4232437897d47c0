"""Where and when a run happens: client hosts, coordinator, ledger. The only rooms that know Ray."""
