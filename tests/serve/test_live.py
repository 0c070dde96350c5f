# SPDX-License-Identifier: Apache-2.0
"""The script of the live page, run without a browser where there is Node."""

import shutil
import subprocess
from pathlib import Path

import pytest

import kvnmt

PAGE = Path(kvnmt.__file__).parent / "pictures" / "page"
SCRIPTS = [PAGE / name for name in ("forced.js", "live.js")]
NODE = shutil.which("node")
# What the page's other scripts and the browser give it.
AROUND = r"""
const CJK = '\\p{Script=Han}', haystacks = [], state = { sentence: 0 }, elements = {};
const DATA = { systems: [{}, {}], sentences: [] };
const classList = { toggle() {} };
let box = null; // that somebody types in
const querySelector = () => box, querySelectorAll = () => (box ? [box] : []);
const byId = (id) =>
  (elements[id] ??= {
    ...{ value: '', classList, replaceChildren() {}, select() {} },
    ...{ querySelector, querySelectorAll },
  });
const location = { origin: 'http://localhost:8000', pathname: '/' };
let shows = 0;
const on = () => {}, buildList = on, addEventListener = on, showAll = () => shows++;
const document = { activeElement: null, body: {} };
let hypothesisContent;
const asked = [];
const right = (body) => ({ ok: true, json: async () => ({ source: body.line }) });
const wrong = () => ({ ok: false, json: async () => ({ error: 'not now' }) });
let answer = right;
async function fetch(_, { body }) {
  asked.push(JSON.parse(body));
  return answer(asked.at(-1));
}
const soon = () => new Promise((done) => setTimeout(done, 1));
async function type(line, enter) {
  byId('line').value = line;
  (enter ? keepDraft : translateDraft)();
  await soon();
}
"""
FORCED = """
await type('a b');
answer = wrong;
await type('too long');
answer = right;
force(DATA.sentences[0], 0, 'A X');
await soon();
console.log(JSON.stringify(asked.at(-1)), DATA.sentences.length);
"""
LATER = """
await type('a b');
const seen = DATA.sentences[0];
box = {};
await type('c d');
force(seen, 0, 'A X');
await soon();
await type('c d', true);
console.log(JSON.stringify(asked.slice(-2)));
"""
TYPING = """
await type('a b');
const before = shows;
box = {};
await type('a b c');
const during = shows;
box = null;
showLater();
showLater();
console.log(before, during, shows, DATA.sentences.at(-1).source);
"""
AGAIN = """
answer = wrong;
await type('c d', true);
answer = right;
await type('c d', true);
await type('c d', true);
console.log(asked.length, DATA.sentences.map((shown) => shown.source).join());
"""
COMPOSED = """
const calls = [];
const node = (name) => ({ dataset: {}, replaceWith: () => calls.push(name) });
let attributes;
globalThis.element = (_, given) => {
  attributes = given;
  return { ...node('left'), isConnected: true, select() {} };
};
editWord(node('began'), {}, 0, '', 'に');
attributes.onkeydown({ key: 'Escape', isComposing: true });
attributes.onkeydown({ key: 'Escape', keyCode: 229 });
calls.push('composed');
attributes.onkeydown({ key: 'Escape' });
console.log(calls.join());
"""


def says(script: str) -> str:
    assert NODE
    scripts = "\n".join(script.read_text() for script in SCRIPTS)
    program = f"{AROUND}{scripts}(async () => {{ {script} }})();"
    given = {"input": program, "text": True, "capture_output": True, "timeout": 60}
    done = subprocess.run([NODE, "-"], check=False, **given)
    assert not done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(NODE is None, reason="there is no Node here")
def test_a_forced_word_is_of_the_line_that_is_shown():
    """Whatever was typed since, and refused."""
    assert says(FORCED) == '{"line":"a b","prefixes":["A X",""]} 1'


@pytest.mark.skipif(NODE is None, reason="there is no Node here")
def test_a_word_is_forced_where_it_was_clicked():
    """Though the next line was answered meanwhile, which can then be asked again."""
    forced = '{"line":"a b","prefixes":["A X",""]}'
    assert says(LATER) == f'[{forced},{{"line":"c d","prefixes":["",""]}}]'


@pytest.mark.skipif(NODE is None, reason="there is no Node here")
def test_an_answer_takes_no_box_from_who_types_in_it():
    """It is shown once nobody does."""
    assert says(TYPING) == "1 1 2 a b c"


@pytest.mark.skipif(NODE is None, reason="there is no Node here")
def test_a_line_that_was_refused_can_be_asked_again():
    """Once; a line that was answered is not asked twice."""
    assert says(AGAIN) == "2 c d"


@pytest.mark.skipif(NODE is None, reason="there is no Node here")
def test_escape_in_the_list_of_an_input_method_leaves_what_was_typed():
    assert says(COMPOSED) == "began,composed,left"
