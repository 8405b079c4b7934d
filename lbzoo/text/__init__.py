"""str or bytes -> ids, under one stated policy."""
