"""The settings of a server, and where they come from: flags, environment variables, a file.

`ServerSettings` is the only list of names, defaults and help texts. Each field with a text is the
flag `--name`, the variable `BYLOT_NAME` and an entry of the file, in the section that it names. A
field of entries by name, such as `keys`, is a group of tables of the file. To add a section, add
its fields here. How a file is read is in `config_file`.
"""

import os
from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from bylot.errors import BylotError
from bylot.gateway.config import Count, GatewayEntry, ModelEntry, Seconds, list_model_variables
from bylot.server.field_errors import explain_msgspec_error

ENV_PREFIX = "BYLOT_"
CONFIG_VARIABLE = f"{ENV_PREFIX}CONFIG"
OTHER_VARIABLES = (CONFIG_VARIABLE, "BYLOT_SERVER", "BYLOT_KEY")  # the last two: of the client

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
DEFAULT_SCOPES = SCOPES[:3]
MIN_CLUSTER_KEY_CHARS = 16
CLUSTER_KEY_REMEDY = "set BYLOT_CLUSTER_KEY to the same secret on all servers of the store"
SECRET_SETTINGS = ("store", "cluster_key")  # a store may have a password
Rate = Annotated[float, Meta(gt=0, le=1e9)]
Port = Annotated[int, Meta(ge=0, le=65_535)]


Duration = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,8}[smhd]$")]
DURATION_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class KeyEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An API key. Its secret is in a file, in an environment variable, or only its digest is known
    (as `bylot keys create --for-config` prints it).
    """

    scopes: tuple[Scope, ...] = DEFAULT_SCOPES
    routers: tuple[str, ...] = ()  # empty: all
    file: Path | None = None
    env: str | None = None
    digest: str | None = None


class RouterEntry(Struct, frozen=True, kw_only=True):
    """A router that the file declares; see `RouterConfig`. What is None is not given.

    problem: the path of a problem file; or the `Document` of a problem in the configuration file,
             whose experts may be `models`
    paused:  None: as they are
    gateway: how its panels are asked, if its experts are models
    source:  the `Document` of this entry, for errors
    """

    problem: Any = None
    policy: str = "auto"
    seed: int | None = None
    horizon: int | None = None
    rewards: tuple[float, float] | None = None
    feedback: Literal["panel", "members", "winner"] | None = None
    max_contexts: Count | None = None
    memory: int | None = None
    wait: float | None = None
    default: float | None = None
    aggregate: Literal["earliest", "last", "sum"] = "earliest"
    paused: tuple[str, ...] | None = None
    gateway: GatewayEntry | None = None
    source: Any = None


def describe(text: str, section: str = "", expected: str = "") -> Meta:
    """The help text of a setting, the section of the file that it is in, and what it must be, for
    errors, if its type does not say it well.
    """
    return Meta(description=text, extra={"section": section, "expected": expected})


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Settings of one server."""

    store: Annotated[str, describe("sqlite:///FILE or postgresql://USER@HOST/DATABASE")] = (
        "sqlite:///bylot.db"
    )
    commit: Annotated[
        Literal["group", "each"], describe("one transaction for concurrent requests, or for each")
    ] = "group"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], describe("debug logs every request")
    ] = "info"
    lease_s: Annotated[Seconds, describe("seconds that a router is owned without renewal")] = 3.0
    keep: Annotated[
        Duration | None,
        describe(
            "time after which old events are dropped, such as 90d or 12h",
            expected="a positive whole number and its unit s, m, h or d, such as 90d",
        ),
    ] = None
    host: Annotated[str, describe("address to listen on", "listen")] = "127.0.0.1"
    port: Annotated[Port, describe("port to listen on; 0 picks a free one", "listen")] = 8000
    rate: Annotated[Rate | None, describe("requests per second and key", "limits")] = None
    burst: Annotated[Count | None, describe("requests of a key at once", "limits")] = None
    max_queued: Annotated[Count, describe("commands that may wait", "limits")] = 10_000
    max_body_bytes: Annotated[Count, describe("size of a request body", "limits")] = 1_000_000
    body_timeout_s: Annotated[Seconds, describe("seconds for a request body", "limits")] = 10.0
    idle_timeout_s: Annotated[Seconds, describe("seconds for a request head", "limits")] = 30.0
    request_timeout_s: Annotated[Seconds, describe("seconds for a result", "limits")] = 10.0
    drain_timeout_s: Annotated[
        Seconds, describe("seconds for open requests at the end, then for snapshots", "limits")
    ] = 30.0
    max_chat_body_bytes: Annotated[
        Count, describe("size of the body of a chat completion", "gateway")
    ] = 10_000_000
    max_chats: Annotated[Count, describe("chat completions at once", "gateway")] = 256
    max_chats_per_key: Annotated[Count, describe("those of one key", "gateway")] = 64
    advertise: Annotated[
        str | None, describe("URL of this server for the others of its store", "cluster")
    ] = None
    cluster_key: Annotated[
        str | None, describe("secret that the servers of a store share", "cluster")
    ] = None
    leave_s: Annotated[
        Seconds, describe("seconds to forward requests before the port is closed", "cluster")
    ] = 5.0
    keys: dict[str, KeyEntry] = {}
    routers: dict[str, RouterEntry] = {}
    model_list: tuple[ModelEntry, ...] = ()

    @property
    def keep_us(self) -> int | None:
        """Microseconds for which events are kept; None: for ever."""
        if self.keep is None:
            return None
        return int(self.keep[:-1]) * DURATION_SECONDS[self.keep[-1]] * 1_000_000

    def __repr__(self) -> str:
        return f"ServerSettings({', '.join(f'{k}={v!r}' for k, v in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        values = {name: getattr(self, name) for name in self.__struct_fields__}
        kind = self.store.partition("://")[0] if "://" in self.store else "?"
        secrets = {"store": f"{kind}://...", "cluster_key": self.cluster_key and "..."}
        return list({**values, **secrets}.items())


class Setting(NamedTuple):
    """A field of `ServerSettings` that is also a flag and an environment variable."""

    name: str
    kind: Any
    text: str
    section: str
    expected: str
    default: Any

    @property
    def variable(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it can be, if it is one of some words."""
        kind = self.kind.__origin__
        return get_args(kind) if getattr(kind, "__origin__", None) is Literal else ()

    def parse_flag(self, text: str) -> Any:
        """The type of its option; argparse names the option if it raises."""
        try:
            return self.parse(text, "value")
        except BylotError as error:
            raise ArgumentTypeError(str(error)) from None

    def parse(self, value: Any, what: str, *, strict: bool = False) -> Any:
        """A valid value, also from a text unless `strict`."""
        try:
            return msgspec.convert(value, self.kind, strict=strict)
        except msgspec.ValidationError as error:
            said = explain_msgspec_error(str(error)).removeprefix("expected ")
            expected = " or ".join(self.choices) or said.partition(", got ")[0]
            linked = str(value).startswith("tcp://")
            remedy = "Kubernetes sets it: use enableServiceLinks: false" if linked else None
            shown = "another type" if self.name in SECRET_SETTINGS else value
            raise BylotError(
                what, got=shown, expected=self.expected or expected, remedy=remedy
            ) from None


HINTS = get_type_hints(ServerSettings, include_extras=True)
DEFAULTS = ServerSettings()
SETTINGS = {
    name: Setting(name, kind, meta.description, **meta.extra, default=getattr(DEFAULTS, name))
    for name, kind in HINTS.items()
    for meta in getattr(kind, "__metadata__", ())[-1:]
}
TABLES = {name: get_args(HINTS[name])[1] for name in ("keys", "routers")}


class LoadedSettings(NamedTuple):
    """The settings, where each that is not a default comes from, and warnings for the log."""

    settings: ServerSettings
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


def load_settings(
    flags: Mapping[str, Any], config: str | Path | None, environ: Mapping[str, str] = os.environ
) -> LoadedSettings:
    """The settings from flags, else the environment, else the file, else the defaults."""
    path = config or environ.get(CONFIG_VARIABLE)
    values: dict[str, Any] = {}
    warnings: list[str] = []
    if path:
        from bylot.server.config_file import ConfigReader, parse_config  # slow

        reader = ConfigReader(parse_config(Path(path)))
        values, warnings = dict(reader.read()), reader.warnings
    origins = dict.fromkeys(values, str(path))
    for name, one in SETTINGS.items():
        if text := environ.get(one.variable):  # compose files set unknown variables to ""
            values[name], origins[name] = one.parse(text, one.variable), one.variable
        if name in flags:
            values[name], origins[name] = flags[name], one.flag
    settings = ServerSettings(**values)
    known = {*OTHER_VARIABLES, *(one.variable for one in SETTINGS.values())}
    known |= {key.env for key in settings.keys.values() if key.env}
    known |= set(list_model_variables(settings.model_list))
    unknown = sorted({name for name in environ if name.startswith(ENV_PREFIX)} - known)
    warnings += [f"unknown variable {name}; {suggest_field(name, known)}" for name in unknown]
    return LoadedSettings(settings, origins, tuple(warnings))


def check_cluster(settings: ServerSettings) -> None:
    """Refuse half of the settings of a cluster, or an address that others cannot use."""
    if settings.advertise is None:
        return
    if not settings.cluster_key:
        raise BylotError("advertise without a cluster key", remedy=CLUSTER_KEY_REMEDY)
    if len(settings.cluster_key) < MIN_CLUSTER_KEY_CHARS:
        raise BylotError(
            f"a cluster key of {len(settings.cluster_key)} characters",
            expected=f"at least {MIN_CLUSTER_KEY_CHARS}, as it gives access to all routers",
            remedy="use a long random secret",
        )
    if not settings.advertise.startswith(("http://", "https://")):
        raise BylotError("advertise", got=settings.advertise, expected="http://HOST:PORT")


def suggest_field(name: str, known: Iterable[str]) -> str:
    """The remedy for an unknown name."""
    from bylot.problem.validation import suggest_known_name

    return suggest_known_name(name, sorted(known), "names", can_add=False)
