"""How objects are kept, found and watched: revisions, resources, queues."""
