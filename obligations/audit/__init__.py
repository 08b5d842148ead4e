"""How an audit is made: the net unrolled, its sites found in an artifact, and both compared."""
