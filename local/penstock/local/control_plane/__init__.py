"""The processes of a control plane on this machine: where they keep things, and who minds them."""
