"""From the options of ``penstock brain`` to a running service, or one line that says why not."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any, Final, get_args

import yaml
from sqlalchemy.exc import SQLAlchemyError

from penstock.api.errors import ServerError
from penstock.api.logs import configure_logging
from penstock.api.server import AuthMode, ServerOptions, serve
from penstock.base.kubeconfig import named
from penstock.brain.configuration import ConfigurationError, load
from penstock.brain.registry import RegistryError
from penstock.brain.store.database import DatabaseError

logger = logging.getLogger(__name__)
_SWITCH_SECONDS: Final = 0.0005
"""How long a thread that wants the interpreter waits for the one that has it. Each statement to
SQLite goes to a thread and back, so at Python's 5 ms a busy event loop costs a request of ten
statements 50 ms of waiting."""


def start(
    *,
    host: str,
    port: int,
    database: str,
    config: Path | None,
    settings: list[str],
    kubeconfig: Path | None,
    in_cluster: bool,
    auth: str | None,
    log_format: str,
    log_level: str,
    token_file: Path | None = None,
    requires_audience: bool = False,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    plain_port: int | None = None,
) -> int:
    """Serve until told to stop; the exit status."""
    try:
        configure_logging(log_format, log_level)
        overrides = _overrides(settings)
        # Who asked for a pod's own cluster, or for no cluster's tokens, gets no other from a
        # variable that lies about: least of all a service without tokens.
        unsaid = auth in {None, "kubernetes"} and not in_cluster
        files = named(kubeconfig) if unsaid or kubeconfig is not None else None
        options = ServerOptions(
            settings=load(config, overrides),
            config=config,
            overrides=overrides,
            database=database,
            host=host,
            port=port,
            auth=_auth_mode(auth, clustered=files is not None or in_cluster),
            kubeconfig=files,
            in_cluster=in_cluster,
            token_file=token_file,
            requires_audience=requires_audience,
            certificate=_pair(tls_certificate, tls_key),
            plain_port=plain_port,
        )
        sys.setswitchinterval(_SWITCH_SECONDS)
        asyncio.run(serve(options))
    except (ConfigurationError, DatabaseError, RegistryError, ServerError) as error:
        sys.stderr.write(f"penstock brain: {error}\n")
        return 1
    except (SQLAlchemyError, OSError) as error:
        sys.stderr.write(f"penstock brain: the database cannot be used: {error}\n")
        return 1
    return 0


def _pair(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "--tls-certificate" if certificate is None else "--tls-key"
        raise ServerError(f"{missing}: not given; a certificate and its key go together")
    return certificate, key


def _auth_mode(auth: str | None, *, clustered: bool) -> AuthMode:
    if auth is None:
        return "kubernetes" if clustered else "tokens"
    for mode in get_args(AuthMode):
        if auth == mode:
            return mode  # type: ignore[no-any-return]  # get_args gives Any
    raise ServerError(f"--auth={auth!r}: must be one of {', '.join(get_args(AuthMode))}")


def _overrides(settings: list[str]) -> dict[str, Any]:
    found = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigurationError(f"--set={setting!r}: must be NAME=VALUE")
        try:
            found[name] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigurationError(f"--set={setting!r}: the value is not YAML") from error
    return found
