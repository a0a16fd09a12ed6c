"""The ground floor: what every room may use and what is no custom resource.

Words that several rooms share (`enums`), quantities and their notation (`quantity`), the types of
fields with their bounds (`fields`, `structural`), the targets of a role (`targets`), YAML as
Kubernetes takes it, kubeconfigs, ports and the form of log lines. It imports nothing of Penstock,
so that what runs in a training container can use it without carrying anything else.
"""
