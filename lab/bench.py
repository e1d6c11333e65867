# SPDX-License-Identifier: Apache-2.0
"""tools/bench: what a relocation costs, as ratios of one run."""
from __future__ import annotations

import argparse
import dataclasses
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from lab import (account, births, block_migration, busy, chart, crowd, entry,
                 exposure, figures, held, holes, hydrating, install, kernel,
                 latency, model, parts, peers, places, predecessor, profile,
                 races, races_table, scheduling, together, virtualenv, writers)
from lab.account import Cost
from lab.figures import Aim, Figure
from lab.lab import Lab
from lab.measure import Bench
from lab.node import Size
from lab.show import expect

_PROGRAM = 'tools/bench'
_MINUTE = 60
# Two backends on a node need their memory; what was deleted takes its room
# until the next statistics.
_SIZE = Size(memory_mib=1024, disk_gib=1000)
# What it measures, one after the other, in one lab.
PARTS = {'attach': 'time to attach', 'first-writes': 'first writes',
         'relocation': 'hydration, swap, writes',
         'busy': 'hydration while a server writes',
         'cost': 'processes and statements'}


@dataclasses.dataclass(frozen=True)
class Apart:
    """What is measured in a lab of its own, and only if it is named.

    :ivar about: for a person
    :ivar measure: its figures; given the lab, how many rounds, whether that
        is to be quick, and how to say what is done
    :ivar draw: a picture of the figures with a title, an SVG
    :ivar lab: what its lab has that others do not
    """

    about: str
    measure: Callable[[Lab, int, bool, Callable[[str], None]], list[Figure]]
    draw: Callable[[Sequence[Figure], str], str] = chart.ratios
    lab: dict[str, Any] = dataclasses.field(default_factory=dict)


APART = {
    'births': Apart('snapshots and clones of small and large volumes',
                    births.measure, lab={'size': births.SIZE}),
    'exposure': Apart('how long a volume is on two nodes',
                      exposure.measure, exposure.draw),
    'hydrating': Apart('reads and writes of what has not arrived',
                       hydrating.measure, lab={'size': hydrating.SIZE}),
    'together': Apart('many small volumes that move at once, beside a large '
                      'one', together.measure),
    'holes': Apart('what crosses the network of a thin volume',
                   holes.measure, holes.draw),
    'servers': Apart("1, 4 and 8 servers that write at once, beside Cinder's "
                     'LVM driver', writers.measure,
                     lab={'beside': peers.BACKENDS}),
    'held': Apart('connections, queues and statements of a node',
                  held.measure),
    'model': Apart('statements of real nodes beside those of the model',
                   model.measure, lab=model.LAB),
    'latency': Apart('writes of a server while its volume moves',
                     latency.measure, latency.draw),
    'parts': Apart('where the time goes that a server waits for the control '
                   'plane', parts.measure, lab=parts.LAB),
    'block-migration': Apart("live migration beside that of a server on a "
                             "disk of Nova's own", block_migration.measure,
                             lab=block_migration.LAB),
    'predecessor': Apart('hydration and an outage beside the proof of '
                         'concept', predecessor.measure,
                         lab=predecessor.LAB),
}


# Tables instead of figures, and no lab: what is measured, and how.
_WITHOUT_LAB: dict[str, tuple[str, Callable[
    [bool, Callable[[str], None]], profile.Profile | places.Comparison]]] = {
    'statements': ('what is asked of the database of a large fleet',
                   profile.measure),
    'places': ('what it takes to share out the room of a node, on one '
               'database and on a Galera cluster', places.measure),
}


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description='Measure relocations in a lab of two '
        'real kernels. Only ratios mean anything: the lab is slow. Needs '
        'root on Debian or Ubuntu; installs what is missing. A missed aim '
        'does not change the exit status.')
    parser.add_argument('--json', type=pathlib.Path, metavar='FILE',
                        help='write all figures and samples there, too')
    parser.add_argument('--plot', type=pathlib.Path, metavar='FILE',
                        help='write a picture of the figures (SVG)')
    parser.add_argument('--quick', action='store_true',
                        help='one repetition instead of several, and less of '
                        'what takes long')
    parser.add_argument('--rounds', type=_count, metavar='N',
                        help='so many repetitions')
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        '--only', choices=[*PARTS, *APART], metavar='PART',
        help='measure one part: ' + '; '.join(
            f'{name}: {about}' for name, about in PARTS.items())
        + '. Or, in a lab of its own, what is not measured otherwise: '
        + '; '.join(f'{name}: {part.about}' for name, part in APART.items()))
    only.add_argument('--peers', action='store_true',
                      help="measure this driver beside Cinder's LVM driver, "
                      'and nothing else')
    only.add_argument('--races', action='store_true',
                      help='measure ways to have a row that others want, on '
                      'one MariaDB and on a Galera cluster, and nothing else')
    only.add_argument('--crowd', action='store_true',
                      help='measure a node that hydrates 100 volumes and '
                      'has lent 100 when their lender dies, and nothing '
                      'else')
    for name, (about, _) in _WITHOUT_LAB.items():
        only.add_argument(f'--{name}', action='store_true', help='measure '
                          f'{about}, and nothing else; needs no lab')
    only.add_argument('--scheduling', action='store_true',
                      help='measure what nova-scheduler is given with 1000 '
                      'hosts, and nothing else; needs no lab')
    parser.add_argument('--scale', type=_part, default=0.1, metavar='PART',
                        help='so large a part of the contenders of --races '
                        '(default: %(default)s; 1 needs 500 processes)')
    parser.add_argument('--name', default=entry.lab_name('bench'),
                        help='name of the lab (default: %(default)s)')
    kernel.add_option(parser)
    found = parser.parse_args(argv)
    if found.races and found.rounds:
        parser.error('--races counts turns, not rounds')
    return found


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('at least 1')
    return number


def _part(text: str) -> float:
    number = float(text)
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError('above 0, at most 1')
    return number


def rounds(args: argparse.Namespace) -> int:
    """How often each measurement is made."""
    if args.rounds:
        return int(args.rounds)
    if args.scheduling:
        return 10 if args.quick else 100
    times = 1 if args.quick else 5 if args.peers else 3
    return 2 * times if args.crowd else times


class Suite:
    """All figures, measured with so many repetitions."""

    def __init__(self, bench: Bench, lab: Lab, times: int) -> None:
        self._bench = bench
        self._lab = lab
        self._times = times
        self._measures: dict[str, Callable[[], list[Figure]]] = {
            'attach': self._attach, 'first-writes': self._first_writes,
            'relocation': self._relocations, 'busy': self._busy,
            'cost': self._accounts}

    def run(self, only: str | None) -> list[Figure]:
        """Measure everything, or one of the parts."""
        found = []
        for part in (only,) if only else PARTS:
            _say(PARTS[part])
            found += self._measures[part]()
        return found

    def _attach(self) -> list[Figure]:
        return [self._bench.attach_times((1, 64), 2 * self._times)]

    def _first_writes(self) -> list[Figure]:
        return [self._bench.first_writes(3 * self._times)]

    def _relocations(self) -> list[Figure]:
        samples: dict[str, list[float]] = {
            'hydration': [], 'dd': [], 'fio': [], 'best': [], 'with': [],
            'without': []}
        # Must not be there before all windows have been measured.
        volume, at = self._bench.filled(8)
        for number in range(self._times):
            self._bench.detach(at)
            at = self._bench.attach(volume, 2 - number % 2)
            self._bench.relocation(at, 2, samples)
        writes = self._bench.against_bare(at, 4 * self._times + 1)
        self._bench.detach(at)
        self._lab.delete_volume(volume)
        return [
            figures.ratio('hydration against the best of dd and fio',
                          'hydration', 'best',
                          {key: samples[key] for key in (
                              'hydration', 'best', 'dd', 'fio')},
                          'MiB/s', Aim(0.95)),
            _stall({key: samples[key] for key in ('with', 'without')}),
            writes]

    def _busy(self) -> list[Figure]:
        return busy.measure(self._bench, self._lab, self._times)

    def _accounts(self) -> list[Figure]:
        volume, at = self._bench.filled(1)
        bench = self._bench
        # What has changed is looked at once more by the next statistics. It
        # is not waited for quiet: whether it is, is measured.
        time.sleep(_MINUTE)
        idle = account.idle(self._lab, _MINUTE)
        home: list[account.Cost] = []
        away: list[account.Cost] = []
        for _ in range(self._times):
            here = at.node.number
            for costs, node in ((home, here), (away, 3 - here)):
                bench.detach(at)

                def attach() -> None:
                    nonlocal at
                    at = bench.attach(volume, node)
                    bench.settle(at)
                costs.append(account.cost(self._lab, attach))
        bench.detach(at)
        self._lab.delete_volume(volume)
        return [*_idle(idle, len(self._lab.nodes)),
                *_costs('attach elsewhere', away),
                *_costs('attach at home', home)]


def _stall(samples: dict[str, list[float]]) -> Figure:
    """The longest write around a swap, against one without."""
    swap, calm = (statistics.median(samples[key])
                  for key in ('with', 'without'))
    return Figure('longest 4 KiB write at the swap', swap, 'ms',
                  f'without a swap {figures.number(calm)} ms; worst '
                  f'{figures.number(max(samples["with"]))} and '
                  f'{figures.number(max(samples["without"]))} ms',
                  Aim(20, most=True), samples,
                  limits='what such a write takes without a swap, and one '
                         'change of a table')


def _idle(cost: Cost, nodes: int) -> list[Figure]:
    """Figures of an idle minute, for one node."""
    scale = _MINUTE / cost.seconds / nodes
    beats = cost.statements.heartbeat * scale
    return [
        Figure('processes, idle node, a minute',
               round(cost.programs.total() * scale, 1), note=cost.most(),
               aim=Aim(0, most=True)),
        Figure('SQL statements, idle node, a minute',
               round(cost.statements.other * scale, 1),
               note=f'beside {figures.number(beats)} of Cinder\'s own '
                    'heartbeat', aim=Aim(0, most=True))]


def _costs(what: str, costs: list[Cost]) -> list[Figure]:
    """Figures of one attachment, until nothing is left to do."""
    ran = [float(cost.programs.total()) for cost in costs]
    sent = [float(cost.statements.other) for cost in costs]
    return [Figure(f'processes, {what}', statistics.median(ran),
                   note=costs[-1].most(), samples={'processes': ran}),
            Figure(f'SQL statements, {what}', statistics.median(sent),
                   samples={'statements': sent})]


def _run(args: argparse.Namespace) -> int:
    install.check_machine()
    for file in filter(None, (args.json, args.plot)):
        # Rather now than after all measurements.
        expect(file.absolute().parent.is_dir(), f'no directory for {file}')
    times = rounds(args)
    if args.scheduling:
        found = scheduling.measure(install.ensure() / 'bin/python', times)
        _tell(args, found, times)
        return 0
    for name, (_, measure) in _WITHOUT_LAB.items():
        if getattr(args, name):
            _tell_text(args, measure(args.quick, _say))
            return 0
    kernel.use(args.kernel)
    begin = time.monotonic()
    if args.races:
        _races(args)
        return 0
    lab = _lab(args)
    with entry.running(lab):
        found = _measure(lab, times, args)
        release = lab.nodes[-1].run('uname -r').stdout.strip()
    print(f'Linux {release}, user-mode; medians of {times}; '
          f'{time.monotonic() - begin:.0f} s')
    _tell(args, found, times, kernel=release)
    return 0


def _tell_text(args: argparse.Namespace,
               found: profile.Profile | places.Comparison) -> None:
    print('\n'.join(found.lines()))
    if args.json:
        args.json.write_text(found.report())


def _races(args: argparse.Namespace) -> None:
    part, turns = (0.02, 2) if args.quick else (args.scale, races.TURNS)
    found = races.compare(part, turns, _PROGRAM)
    print('\n'.join(table.text() for table in found))
    if args.json:
        args.json.write_text(races_table.report(
            found, commit=virtualenv.commit(), scale=part, turns=turns))


def _lab(args: argparse.Namespace) -> Lab:
    more: dict[str, Any] = {}
    if args.crowd:
        more = {'nodes': 3}
    elif args.peers:
        more = {'beside': peers.BACKENDS}
    elif args.only in APART:
        more = APART[args.only].lab
    # No overwriting of deleted volumes beside a measurement; a paused
    # service is not taken for dead.
    return Lab(args.name, **{
        'backend': {'volume_clear': 'none'},
        'default': {'service_down_time': 300}, 'size': _SIZE, **more})


def _tell(args: argparse.Namespace, found: list[Figure], times: int,
          **about: str) -> None:
    print('\n'.join(figures.table(found)))
    if args.json:
        args.json.write_text(figures.report(
            found, commit=virtualenv.commit(), **about, repetitions=times))
    if args.plot:
        draw = APART[args.only].draw if args.only in APART else chart.ratios
        args.plot.write_text(draw(found, f'{_command(args)} at '
                                         f'{virtualenv.commit()}'))


def _command(args: argparse.Namespace) -> str:
    """What has been called, without what is only about its output."""
    words = [_PROGRAM]
    if args.only:
        words.append(f'--only {args.only}')
    words += [f'--{name}' for name in (
        'peers', 'crowd', 'scheduling', 'quick') if getattr(args, name)]
    return ' '.join(words)


def _measure(lab: Lab, times: int, args: argparse.Namespace) -> list[Figure]:
    if args.crowd:
        return _crowd(lab, times, args.quick)
    if args.peers:
        return peers.Peers(lab, times, _say).run()
    if args.only in APART:
        return APART[args.only].measure(lab, times, args.quick, _say)
    return Suite(Bench(lab), lab, times).run(args.only)


def _say(text: str) -> None:
    print(f'{_PROGRAM}: {text}', file=sys.stderr, flush=True)


def _crowd(lab: Lab, times: int, quick: bool) -> list[Figure]:
    return crowd.measure(lab, (2, 20) if quick else (10, 100), times, _say)


def main() -> int:
    """The command's exit status."""
    args = arguments()
    return entry.guard(_PROGRAM, lambda: _run(args))


if __name__ == '__main__':
    sys.exit(main())
