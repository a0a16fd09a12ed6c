"""Manifests of other systems, as jobs of Penstock: pure, nothing is read or sent here."""
