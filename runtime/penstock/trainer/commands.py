"""``penstock trainer``, ``penstock run`` and ``penstock ps``: the commands inside a job's pods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.base.enums import OnHang

run = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def trainer(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0: any free one.")] = None,
    state_dir: Annotated[
        Path | None, typer.Option(help="Where the journal lives; default: none outside a pod.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Outside a cluster: how many workers to expect.")
    ] = None,
    servers: Annotated[
        int | None, typer.Option(help="The same of parameter servers: begin only with this many.")
    ] = None,
    min_workers: Annotated[int | None, typer.Option(help="Train only with this many.")] = None,
    slots: Annotated[int | None, typer.Option(help="Micro-batches per step.")] = None,
    lease_seconds: Annotated[float | None, typer.Option(help="Term of a lease.")] = None,
    hang_seconds: Annotated[
        float | None, typer.Option(help="End a program that holds up the others for so long.")
    ] = None,
    on_hang: Annotated[
        OnHang | None,
        typer.Option(help="Outside a cluster: what follows when a process stands still."),
    ] = None,
    on_hang_after_seconds: Annotated[
        float | None, typer.Option(help="For how long it may, beyond its longest pause so far.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Outside a cluster: train without quarantined slots.")
    ] = False,
    independent: Annotated[
        bool,
        typer.Option(
            "--independent", help="Outside a cluster: each worker runs a program of its own."
        ),
    ] = False,
    static_shares: Annotated[
        bool, typer.Option("--static-shares", help="Divide steps evenly whatever the speeds.")
    ] = False,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Run a job's Elastic Trainer: who trains together, and who gets which samples."""
    from dataclasses import replace

    from penstock.job.settings import SettingsError, trainer_settings
    from penstock.trainer import service
    from penstock.trainer.logs import configure

    try:
        configure(log_format)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    chosen: dict[str, Any] = {
        "host": host,
        "port": port,
        "state_dir": state_dir,
        "workers": workers,
        "servers": servers,
        "min_workers": min_workers,
        "slots_per_step": slots,
        "lease_seconds": lease_seconds,
        "hang_seconds": hang_seconds,
        "on_hang": on_hang,
        "on_hang_after_seconds": on_hang_after_seconds,
        "skip_bad": skip_bad,
        "independent": independent,
        "static_shares": static_shares,
    }
    try:
        settings = replace(
            trainer_settings(), **{key: value for key, value in chosen.items() if value is not None}
        )
        code = service.run(settings)
    except SettingsError as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.Exit(code)


def ps(
    trainer_address: Annotated[
        str | None, typer.Option("--trainer", help="HOST:PORT of the job's trainer.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory that it may use, such as 2Gi; default: any.")
    ] = None,
    grace_seconds: Annotated[
        float, typer.Option(help="Time that SIGTERM leaves others to take over what it holds.")
    ] = 25.0,
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    """Run a parameter server: it holds a share of a model's parameters, and applies gradients."""
    import os

    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a server does no linear algebra
    from penstock.job.settings import SettingsError
    from penstock.parameter_server.server import process
    from penstock.parameter_server.server.settings import server_settings
    from penstock.trainer.logs import configure

    try:
        configure(log_format)
        settings = server_settings(trainer_address, host, memory, grace_seconds)
    except (SettingsError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    try:
        code = process.run(settings)
    except OSError as error:
        raise typer.BadParameter(
            f"--host: {settings.host}: {error.strerror}; nothing can listen there"
        ) from error
    raise typer.Exit(code)


@run.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="Run a training program as one worker of a job: penstock run -- python train.py",
)
def _run(
    context: typer.Context,
    command: Annotated[list[str], typer.Argument(help="The program and its arguments.")],
    trainer_address: Annotated[
        str | None, typer.Option("--trainer", help="HOST:PORT of the job's trainer.")
    ] = None,
    grace_seconds: Annotated[
        float, typer.Option(help="Time that SIGTERM leaves the program before it is killed.")
    ] = 25.0,
    nproc_per_node: Annotated[
        str | None,
        typer.Option(
            "--nproc-per-node",
            "--nproc_per_node",
            help="As torchrun: start so many processes (or gpu, cpu, auto), ranks of one world.",
        ),
    ] = None,
    replica_group: Annotated[
        bool,
        typer.Option(
            "--replica-group",
            help="With --nproc-per-node: each pod's processes are a world of their own, one member "
            "of an elastic session: they hold a sharded model together.",
        ),
    ] = False,
    replica_group_pods: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --replica-group: so many pods are one replica group, by their ranks. "
            "Default: a job's nodeUnit, else 1.",
        ),
    ] = None,
    max_restarts: Annotated[
        int,
        typer.Option(
            min=0,
            help="How often a program that fails is started again in its pod, from the state in "
            "the agent's memory.",
        ),
    ] = 0,
    data_workers: Annotated[
        int | None,
        typer.Option(help="Without a cluster: make the DataLoaders' batches in so many processes."),
    ] = None,
    stage_workers: Annotated[
        int | None,
        typer.Option(help="With --data-workers: so many more run batched stages and functions."),
    ] = None,
    apply: Annotated[
        Path | None,
        typer.Option(help="Without a cluster: do what a profile of penstock profile says helps."),
    ] = None,
    guarantee: Annotated[
        str | None,
        typer.Option(help="With --data-workers: ExactlyOnce, AtMostOnce or Unsharded."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="With --data-workers: leave out samples that raise.")
    ] = False,
    buckets: Annotated[
        str | None,
        typer.Option(help="With --data-workers: steps of like length; 64,128,256 are the longest."),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(help="With --buckets: an attribute of the dataset, or a file (./a.npy)."),
    ] = None,
    tokens_per_batch: Annotated[
        int | None, typer.Option(help="With --buckets: so many to a batch, padded.")
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(help="Programs of this machine that say the same name share their batches."),
    ] = None,
    share_order: Annotated[
        str, typer.Option(help="With --share: free, or common: the same batches for everybody.")
    ] = "free",
    share_window: Annotated[
        str | None, typer.Option(help="With --share: bytes that each data worker keeps, as 2Gi.")
    ] = None,
    compression: Annotated[
        str | None, typer.Option(help="With --data-workers: None, Auto or Zstd, over a network.")
    ] = None,
    sharding: Annotated[
        str | None, typer.Option(help="With --data-workers: Dynamic or Static.")
    ] = None,
    save_batches: Annotated[
        Path | None, typer.Option(help="Save the first epoch of each DataLoader to this folder.")
    ] = None,
    load_batches: Annotated[
        Path | None, typer.Option(help="Take the DataLoaders' batches from this folder.")
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(help="Without a cluster: memory for files that are read again, as 4GiB."),
    ] = None,
    cache_path: Annotated[
        list[str] | None, typer.Option(help="With --cache: a folder of such files; any number.")
    ] = None,
    cache_form: Annotated[
        str | None,
        typer.Option(
            help="With --cache: raw (default), or decoded: what an ImageFolder's loader, or a "
            "Stage with random=False, makes of each file."
        ),
    ] = None,
    partition: Annotated[
        str,
        typer.Option(help="What leaves the step: auto, declared (penstock.data.offload) or never."),
    ] = "",
    log_format: Annotated[str, typer.Option(help="text or json.")] = "text",
) -> None:
    import asyncio
    import os

    from penstock.base.enums import Compression, Partition, Sharding, ShareOrder
    from penstock.crds import environment as names
    from penstock.data import interception, variables
    from penstock.data.hooked import hooked
    from penstock.data.protocol import InputOptions
    from penstock.job import settings
    from penstock.trainer.logs import configure

    try:
        configure(log_format)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    chosen = _partition(partition)
    if partition:
        os.environ[names.PARTITION] = chosen.lower()
    try:
        variables.check()
        settings.check_bounds(grace_seconds=grace_seconds)
        if trainer_address is not None:
            address: str | None = settings.checked_address("--trainer", trainer_address)
        else:
            address = settings.trainer_address()
        identity = settings.pod_identity()
    except (settings.SettingsError, variables.VariableError) as error:
        raise typer.BadParameter(str(error)) from error
    if replica_group and nproc_per_node is None:
        raise typer.BadParameter("--replica-group: of how many processes? Give --nproc-per-node")
    replica_pods = _replica_pods(replica_group_pods, address) if replica_group else 0
    if replica_group_pods is not None and not replica_group:
        raise typer.BadParameter("--replica-group-pods goes with --replica-group")
    ranks, command = _ranks(nproc_per_node, command)
    if ranks and max_restarts:
        raise typer.BadParameter(
            "--max-restarts: leave it out with --nproc-per-node, which starts its processes anew"
        )
    if cache is not None or cache_path or cache_form is not None:
        if address is not None:
            raise typer.BadParameter("--cache: a job says input.cache in its spec")
        _begin_cache(context, cache, cache_path or [], cache_form)
    choice = None
    if apply is not None:
        if data_workers is not None:
            raise typer.BadParameter("--apply says how many data workers there are: leave out one")
        if address is not None:
            typer.echo("penstock run: in a job --apply is left to the scheduler", err=True)
        else:
            choice = _choice(apply, command)
            data_workers = choice.data_workers or None
    if share is not None and address is not None:
        raise typer.BadParameter("--share is for one machine; a job says input.share in its spec")
    if share is None and (share_order != "free" or share_window is not None):
        raise typer.BadParameter("--share-order and --share-window go with --share, and a name")
    if partition and address is None and chosen is not Partition.NEVER:
        data_workers = data_workers or 0
    if save_batches is not None or load_batches is not None:
        os.environ.update(_saved(save_batches, load_batches))
        if address is None:
            data_workers = data_workers or 0
    if data_workers is not None or share is not None:
        from penstock.data import standalone

        options = ["--grace-seconds", str(grace_seconds), "--log-format", log_format]
        if trainer_address is not None:
            options += ["--trainer", trainer_address]
        if ranks:
            options += ["--nproc-per-node", str(ranks)]
        if replica_group:
            options += ["--replica-group", f"--replica-group-pods={replica_pods}"]
        if max_restarts:
            options += ["--max-restarts", str(max_restarts)]
        try:
            wanted = InputOptions(
                guarantee=_guarantee(guarantee),
                skip_bad=skip_bad,
                buckets=_buckets(buckets, lengths, tokens_per_batch),
                compression=_member(Compression, "--compression", compression, Compression.AUTO),
                sharding=_member(Sharding, "--sharding", sharding, Sharding.DYNAMIC),
            )
            arguments = [*options, "--", *command]
            if share is not None:
                order = _member(ShareOrder, "--share-order", share_order, ShareOrder.FREE)
                window = _bytes("--share-window", share_window)
                raise typer.Exit(_shared(share, order, window, data_workers, wanted, arguments))
            assert data_workers is not None, "somebody or a profile said how many"
            stages = stage_workers or 0
            raise typer.Exit(standalone.run(data_workers, wanted, arguments, choice, stages))
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    if guarantee is not None or skip_bad or buckets is not None:
        raise typer.BadParameter(
            "--guarantee, --skip-bad and --buckets go with --data-workers; a job says "
            "input.guarantee, input.skipBad and input.buckets in its spec"
        )
    if stage_workers is not None:
        raise typer.BadParameter("--stage-workers goes with --data-workers")
    if compression is not None or sharding is not None:
        raise typer.BadParameter(
            "--compression and --sharding go with --data-workers; a job says input.compression and "
            "input.sharding in its spec"
        )
    hooks = hooked if address is None else interception.environment
    environ = hooks(os.environ)
    from penstock.trainer.agent import Agent  # the half of the time that the command takes to begin

    agent = Agent(
        identity,
        address,
        grace_seconds,
        ranks,
        replica_pods=replica_pods,
        max_restarts=max_restarts,
    )
    raise typer.Exit(asyncio.run(agent.run(command, environ)))


def _partition(said: str) -> Any:
    """What of a step may move."""
    from penstock.base.enums import Partition

    try:
        return _member(Partition, "--partition", said or None, Partition.DECLARED)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _replica_pods(asked: int | None, trainer: str | None) -> int:
    """Of how many pods a replica group is; they find each other by the trainer."""
    from penstock.job import settings

    try:
        pods = asked or settings.replica_pods()
    except settings.SettingsError as error:
        raise typer.BadParameter(str(error)) from error
    if pods > 1 and trainer is None:
        raise typer.BadParameter(
            f"--replica-group-pods: {pods}; a replica group of several pods needs a trainer: give "
            "--trainer"
        )
    return pods


def _ranks(asked: str | None, command: list[str]) -> tuple[int, list[str]]:
    """How many processes are to be ranks of one world (0: none), and what each of them runs."""
    if asked is None:
        return 0, command
    import os
    from contextlib import closing

    from penstock.data.cores import usable_cores
    from penstock.trainer.gpu.nvml import NvmlReader
    from penstock.trainer.launch.process_count import count_processes, without_device
    from penstock.trainer.launch.rank_command import rank_command

    try:
        with closing(NvmlReader(os.environ)) as devices:
            count = count_processes(asked, devices.count, usable_cores)
            if said := without_device(count, devices.count()):
                typer.echo(f"penstock run: {said}", err=True)
            return count, rank_command(command)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _begin_cache(
    context: typer.Context, memory: str | None, paths: list[str], form: str | None
) -> None:
    """Have a cache for all that this command starts, until it ends."""
    import os

    from penstock.base.enums import CacheForm
    from penstock.data.cache.launching import beside_program
    from penstock.data.cache.locations import checked_path, parse_memory

    if memory is None or not paths:
        raise typer.BadParameter(
            "--cache BYTES and --cache-path FOLDER go together, as --cache 4GiB --cache-path data"
        )
    try:
        size = parse_memory(memory)
        kept = _member(CacheForm, "--cache-form", form, CacheForm.RAW)
    except ValueError as error:
        raise typer.BadParameter(f"--cache: {error}") from error
    folders = [checked_path(str(Path(path).absolute())) for path in paths]
    for problem in _doubts(size, folders):
        typer.echo(f"penstock run: {problem}", err=True)
    beside = beside_program(size, folders, os.environ, kept)
    os.environ.update(context.with_resource(beside))


def _doubts(size: int, folders: list[str]) -> list[str]:
    """What of a cache is most likely a slip; it begins all the same."""
    from penstock.data.memory import read_memory

    said = [
        f"--cache-path: {folder}: there is no such folder yet; what is read below it is kept"
        for folder in folders
        if not Path(folder).is_dir()
    ]
    if size > (limit := read_memory().limit):
        said.append(f"--cache: {size} bytes are more than the memory here, {limit}")
    return said


def _choice(file: Path, command: list[str]) -> Any:
    """What a profile says of a program on this machine; it is told to the user."""
    from penstock.data import applying
    from penstock.data.cores import usable_cores
    from penstock.data.machine import machine
    from penstock.data.profiling.profile_file import read
    from penstock.throughput.errors import ProfileError

    try:
        profile = read(file)
        warning = applying.check(profile, command, machine())
        choice = applying.choose(profile, usable_cores())
    except ProfileError as error:
        raise typer.BadParameter(f"--apply: {error}") from error
    drawn = applying.OTHER_DRAWS if choice.data_workers else ""
    for text in (warning, choice.text, drawn):
        if text:
            typer.echo(f"penstock run: {text}", err=True)
    return choice


def _buckets(edges: str | None, lengths: str | None, tokens: int | None) -> Any:
    from pydantic import ValidationError

    from penstock.data.protocol import MEASURE, BucketOptions

    if edges is None:
        if lengths is not None or tokens is not None:
            raise ValueError("--lengths and --tokens-per-batch go with --buckets")
        return None
    try:
        boundaries = tuple(sorted({int(one) for one in edges.split(",")}))
    except ValueError:
        raise ValueError(f"--buckets: {edges}; give lengths such as 64,128,256") from None
    try:
        return BucketOptions(boundaries=boundaries, lengths=lengths or MEASURE, tokens=tokens)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"--buckets: {first['loc'][0]}: {first['msg']}") from error


def _shared(
    group: str, order: Any, window: int, data_workers: int | None, options: Any, arguments: Any
) -> int:
    import asyncio

    from penstock.data import standalone
    from penstock.data.cores import usable_cores
    from penstock.data.share_keeper import options_of_group
    from penstock.data.share_membership import Membership
    from penstock.data.share_places import checked_group

    standalone.configure_log()
    count = max(1, round(usable_cores())) if data_workers is None else data_workers
    standalone.check_count(count)
    wanted = options_of_group(checked_group(group), order, window, options)
    return asyncio.run(standalone.run_program(Membership(group, count, wanted), arguments))


def _bytes(option: str, text: str | None) -> int:
    from penstock.base import quantity

    try:
        return 0 if text is None else quantity.parse_bytes(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from error


def _member(kind: Any, option: str, text: str | None, default: Any) -> Any:
    """The member of an enumeration that an option names, in whatever case."""
    for member in kind:
        if text is not None and text.lower() == member.lower():
            return member
    if text is not None:
        raise ValueError(f"{option}: {text}; must be one of {', '.join(kind)}")
    return default


def _saved(save: Path | None, load: Path | None) -> dict[str, str]:
    """What the program's loaders are told of batches to save or to load."""
    from penstock.crds import environment as names

    if save is not None and load is not None:
        raise typer.BadParameter("--save-batches and --load-batches: give one of them")
    if load is not None and not load.is_dir():
        raise typer.BadParameter(f"--load-batches: {load}; there is no such folder")
    if save is not None:
        try:
            save.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise typer.BadParameter(f"--save-batches: {save}: {error.strerror}") from error
    chosen = {names.SAVE_BATCHES: save, names.LOAD_BATCHES: load}
    return {name: str(path.absolute()) for name, path in chosen.items() if path is not None}


def _guarantee(text: str | None) -> Any:
    from penstock.base.enums import Guarantee

    try:
        return Guarantee(text or Guarantee.EXACTLY_ONCE)
    except ValueError:
        known = ", ".join(Guarantee)
        raise ValueError(f"--guarantee: {text}; must be one of {known}") from None
