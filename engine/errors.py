"""The errors a person may see. Each message names the field, the value, the limit and the remedy."""


class StepscopeError(Exception):
    """Base of every error whose message is meant for the user as it stands."""


class ConfigError(StepscopeError):
    """A flag or a combination of flags that cannot work; the message names the flag."""


class LoadError(StepscopeError):
    """A model that cannot be found, read or run; one sentence, shown before anything is served."""


class RequestError(StepscopeError):
    """A request refused at the door.

    `status` is the HTTP status it maps to (400, 413, 429, 503), `param` the field at fault in the
    caller's own words, or None when no single field is.
    """

    def __init__(self, message: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status
