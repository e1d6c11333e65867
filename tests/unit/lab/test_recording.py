# SPDX-License-Identifier: Apache-2.0
"""What a terminal has shown is what the picture shows, when it was shown."""
from __future__ import annotations

import io
import os
import re
import unittest
import xml.etree.ElementTree as ElementTree
from unittest import mock

from lab import animation, record, recording
from lab.errors import LabError
from lab.recording import Event, Version
from lab.show import WIDTH, Console
from lab.virtualenv import CHECKOUT

_SVG = '{http://www.w3.org/2000/svg}'


def _drawn(svg: str) -> list[ElementTree.Element]:
    """The lines of a picture; the title comes first."""
    return list(ElementTree.fromstring(svg).iter(f'{_SVG}text'))


class _Terminal(io.StringIO):

    def isatty(self) -> bool:
        return True


class ScreenTest(unittest.TestCase):

    def test_a_line_that_changes_has_all_its_versions(self) -> None:
        self.assertEqual(
            [[Version(0.0, 'a')], [Version(1.0, ' 1 %'), Version(2.0, ' 2 %')],
             [], [Version(3.0, 'z')]],
            recording.lines([Event(0.0, 'a\r\n'), Event(1.0, '\r 1 %'),
                             Event(2.0, '\r 2 %'), Event(3.0, '\n\nz\n')]))

    def test_what_is_not_written_over_stays(self) -> None:
        self.assertEqual([[Version(0.0, 'abc'), Version(1.0, 'xbc')]],
                         recording.lines([Event(0.0, 'abc'),
                                          Event(1.0, '\rx')]))

    def test_a_sequence_that_was_read_in_two_parts(self) -> None:
        self.assertEqual([[Version(1.0, 'a', bold=True)]], recording.lines(
            [Event(0.0, '\033['), Event(1.0, '1ma\033[0m\n')]))

    def test_unknown_control_characters_are_refused(self) -> None:
        for text in ('a\033[2Jb', 'a\tb', 'a\033[1'):
            with self.assertRaisesRegex(ValueError, 'is not known'):
                recording.lines([Event(0.0, text)])

    def test_what_the_demo_uses_is_known(self) -> None:
        terminal = _Terminal()
        console = Console(terminal)
        with console.step('Wait'):
            console.command('$ openstack', 'volume', 'list')
            console.progress(mock.Mock(hydrated=1, total=2, region_size=1))
        found = recording.lines([Event(0.0, terminal.getvalue())])
        self.assertEqual([False, True, False, False, False],
                         [bool(line) and line[-1].bold for line in found])

    def test_only_long_pauses_are_shortened(self) -> None:
        found = recording.shorten(
            [Event(at, '') for at in (5.0, 5.5, 7.0, 7.25)], 1.0)
        self.assertEqual([1.0, 1.5, 2.5, 2.75], [each.at for each in found])

    def test_a_record_is_read_as_it_was_written(self) -> None:
        events = [Event(0.0, 'ä\r\n'), Event(1.25, '\033[1mb\033[0m')]
        self.assertEqual(events, recording.load(
            recording.dump(events, 'x', 80, 24)))

    def test_what_is_no_record_is_refused(self) -> None:
        for text in ('', '{"version": 1}\n'):
            with self.assertRaisesRegex(ValueError, 'no asciicast'):
                recording.load(text)


class PictureTest(unittest.TestCase):

    def test_each_line_is_there_when_it_was(self) -> None:
        lines = [[Version(1.0, '$ a')], [],
                 [Version(2.0, '   1 <'), Version(2.5, '   2 <')]]
        _, first, early, late = _drawn(animation.draw(lines, 'T', 80))
        self.assertEqual(['$ a', '1 <', '2 <'],
                         [each.text for each in (first, early, late)])
        self.assertEqual(early.get('x'), late.get('x'))
        self.assertNotEqual(first.get('x'), late.get('x'))
        self.assertEqual(
            ['animation-delay:1.00s',
             'animation-delay:2.00s;animation-duration:0.50s',
             'animation-delay:2.50s'],
            [each.get('style') for each in (first, early, late)])
        # What is replaced is hidden at the end and without animation.
        self.assertEqual(['c', 'm', None],
                         [each.get('class') for each in (first, early, late)])

    def test_what_is_replaced_is_hidden_before_and_after(self) -> None:
        svg = animation.draw([[Version(0.0, 'a')]], 'T', 80)
        style, = re.findall(r'\.m\{(.*?)\}', svg)
        self.assertIn('visibility:hidden', style)
        self.assertNotRegex(style, 'backwards|forwards|both')

    def test_the_last_line_is_the_last_row(self) -> None:
        lines = [[Version(float(row), str(row))]
                 for row in range(animation.ROWS + 3)]
        svg = animation.draw(lines, 'T', 80)
        steps = re.findall(r'([\d.]+)%\{transform:translateY\(-(\d+)px', svg)
        self.assertEqual(['18', '36', '54'], [move for _, move in steps])
        self.assertEqual('100.00', steps[-1][0])
        # Where nothing moves it stands there, too.
        self.assertIn('.l{transform:translateY(-54px);', svg)

    def test_what_is_short_does_not_scroll(self) -> None:
        self.assertNotIn('translateY', animation.draw(
            [[Version(0.0, 'a')]] * animation.ROWS, 'T', 80))


class RecordTest(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.said = self.enterContext(
            mock.patch('sys.stdout', io.StringIO()))

    def test_a_command_has_a_terminal(self) -> None:
        found = record.run(['sh', '-c', 'test -t 1 && printf "a\\nb"'])
        self.assertEqual('a\r\nb', ''.join(each.text for each in found))
        self.assertEqual('a\nb', self.said.getvalue())

    def test_a_run_that_failed_is_no_record(self) -> None:
        with self.assertRaisesRegex(LabError, 'sh ended with 3'):
            record.run(['sh', '-c', 'exit 3'])

    def test_an_interrupted_command_does_not_go_on(self) -> None:
        def interrupted(file: int) -> list[Event]:
            self.pid = int(os.read(file, 100))
            raise KeyboardInterrupt
        with mock.patch.object(recording, 'record', interrupted), (
                self.assertRaises(KeyboardInterrupt)):
            record.run(['sh', '-c', 'echo $$; exec sleep 600'])
        self.assertRaises(ProcessLookupError, os.kill, self.pid, 0)

    def test_the_picture_is_that_of_the_record(self) -> None:
        """``tools/record --again`` makes it."""
        log = record.LOG.read_text()
        svg = record.PICTURE.read_text()
        self.assertEqual(record.picture(log), svg)
        last = _drawn(svg)[-1].text
        assert last
        self.assertEqual('Every step was verified;',
                         ' '.join(last.split()[:4]))
        self.assertNotIn('<script', svg)
        self.assertNotIn('http', svg.replace('http://www.w3.org/2000/svg', ''))
        self.assertLess(len(svg), 100 << 10)
        for event in recording.load(log):
            for line in event.text.splitlines():
                self.assertLessEqual(len(line), WIDTH + len('\033[1m\033[0m'))

    def test_readme_shows_what_the_record_has(self) -> None:
        readme = (CHECKOUT / 'README.md').read_text()
        block = readme.partition('\n    # tools/demo\n')[2]
        end = re.search(r'^\S', block, re.MULTILINE)
        assert end
        block = block[:end.start()]
        shown = {line.strip() for line in block.splitlines()} - {'', '...'}
        said = {version.text.strip() for line in recording.lines(
            recording.load(record.LOG.read_text())) for version in line}
        self.assertEqual(set(), shown - said)
        self.assertIn('Every step was verified', block)
