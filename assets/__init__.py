"""What exists: Dagster assets and asset checks, thin over the rooms below; and the compositions the CLI shares."""
