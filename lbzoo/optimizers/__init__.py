"""The one update that every run makes, its schedules and its optimizers."""
