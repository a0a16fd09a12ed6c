"""The batches of an epoch where a program takes them: asked for, waited for, handed over."""
