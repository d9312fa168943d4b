"""RemoteOptions: how object stores are reached."""

from __future__ import annotations

from dataclasses import dataclass

from gpubeton.errors import OptionError

__all__ = ["RemoteOptions"]


@dataclass(frozen=True)
class RemoteOptions:
    """How files in object stores are reached; the defaults suit a store of the cloud that the process runs in.

    Credentials come from where the store's own tools take them: environment variables (``AWS_ACCESS_KEY_ID``,
    ``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_KEY``, ...), then the files of the ``aws`` command where
    boto3 is installed, then the role of the machine, pod or task.

    Parameters
    ----------
    endpoint : str, optional
        Address of a store that is not the cloud's own, such as ``"http://minio:9000"``. By default it is the value of
        ``AWS_ENDPOINT_URL_S3`` or ``AWS_ENDPOINT_URL`` for ``s3://``, else the cloud's.
    region : str, optional
        Region of an S3 bucket; by default the value of ``AWS_REGION``, else us-east-1.
    account : str, optional
        Storage account for ``az://container/...``; by default the value of ``AZURE_STORAGE_ACCOUNT_NAME``.
    profile : str, optional
        Profile of the ``aws`` command, single sign-on included; needs boto3. By default it is the value of
        ``AWS_PROFILE``, else ``default``, both without effect if the environment has credentials.
    anonymous : bool, default False
        Send requests without credentials, for public buckets.
    requests : int, default 32
        Most requests in flight from a process to one bucket or server, whatever they are for: pages, metadata, the
        filling of the cache. An upload counts as one.
    retry_seconds : float, default 300
        How long one request is repeated while the store is overloaded, silent or out of reach.
    silence_seconds : float, default 10
        How long a connection may give no byte before the request is repeated.

    Raises
    ------
    OptionError
        If a value is out of its range.

    Examples
    --------
    >>> RemoteOptions(endpoint="http://minio:9000", requests=64)
    RemoteOptions(endpoint='http://minio:9000', requests=64)
    """

    endpoint: str | None = None
    region: str | None = None
    account: str | None = None
    profile: str | None = None
    anonymous: bool = False
    requests: int = 32
    retry_seconds: float = 300
    silence_seconds: float = 10

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("endpoint", "region", "account", "profile"):
            value: object = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise OptionError(f"RemoteOptions: {name}={value!r}; expected a string that is not empty, or None")
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise OptionError(
                f"RemoteOptions: endpoint={self.endpoint!r}; expected an address such as 'https://minio.example:9000'. "
                "Put http:// or https:// before it."
            )
        requests: object = self.requests
        if not isinstance(requests, int) or not 1 <= requests <= 1024:
            raise OptionError(f"RemoteOptions: requests={requests!r}; expected 1 to 1024")
        for name, least in (("retry_seconds", 0.0), ("silence_seconds", 0.01)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not least <= value < float("inf"):
                raise OptionError(f"RemoteOptions: {name}={value!r}; expected seconds, at least {least:g}")

    def __repr__(self) -> str:
        changed = {name: value for name, value in vars(self).items() if value != getattr(RemoteOptions, name)}
        return f"RemoteOptions({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
