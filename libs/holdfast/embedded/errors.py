"""What can go wrong on the way to a running server. Every message says what to do next."""


class EmbeddedError(Exception):
    """The embedded stack cannot do what was asked; the message says what would help."""


class NothingFound(EmbeddedError):
    """This machine has no way to run the server; the message lists what to install."""


class FolderInUse(EmbeddedError):
    """Another process runs a stack in this folder."""
