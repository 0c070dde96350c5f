# SPDX-License-Identifier: Apache-2.0
"""A compiled program's text, drawn by hand, and what is read in it."""

import pytest

from kvnmt.compiling import hlo
from kvnmt.compiling.sections import Collective, cycles, sections

# A loop of seven turns within one of three, an exchange in a branch, and one that has
# a start and an end; notes as libtpu and as XLA for GPUs write them.
TEXT = """\
HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[4,8]{1,0})->f32[]}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%product (p.0: f32[4,8], p.1: bf16[8,8]) -> f32[4,8] {
  %p.0 = f32[4,8]{1,0:T(8,128)} parameter(0)
  %p.1 = bf16[8,8]{1,0} parameter(1)
  ROOT %dot.1 = f32[4,8]{1,0} dot(%p.0, %p.1), lhs_contracting_dims={1}
}

%put (p.2: f32[7,4,8], p.3: f32[1,4,8], p.4: s32[]) -> f32[7,4,8] {
  %p.2 = f32[7,4,8]{2,1,0} parameter(0)
  %p.3 = f32[1,4,8]{2,1,0} parameter(1)
  %p.4 = s32[] parameter(2)
  ROOT %update = f32[7,4,8]{2,1,0} dynamic-update-slice(%p.2, %p.3, %p.4, %p.4, %p.4)
}

%less (state.0: (s32[], f32[4,8])) -> pred[] {
  %state.0 = (s32[], f32[4,8]{1,0}) parameter(0)
  %i.0 = s32[] get-tuple-element(%state.0), index=0
  %bound = s32[] constant(7)
  ROOT %going = pred[] compare(%i.0, %bound), direction=LT
}

%inner (state.1: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %state.1 = (s32[], /*index=1*/f32[4,8]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %h.1 = f32[4,8]{1,0} get-tuple-element(%state.1), index=1
  %w.1 = bf16[8,8]{1,0} constant({...})
  %h.2 = f32[4,8]{1,0} fusion(%h.1, %w.1), kind=kOutput, calls=%product, \
backend_config={"estimated_cycles":"100"}
  %all = f32[4,8]{1,0} all-reduce(%h.2), to_apply=%add
  %kept = f32[7,4,8]{2,1,0} fusion(%all, %h.2, %i.1), kind=kLoop, calls=%put
  ROOT %state.2 = (s32[], f32[4,8]{1,0}) tuple(%i.1, %all)
}

%outer (state.3: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %state.3 = (s32[], f32[4,8]{1,0}) parameter(0)
  %copy.1 = (s32[], f32[4,8]{1,0}) copy(%state.3), \
backend_config={"estimated_cycles":"10"}
  ROOT %loop.2 = (s32[], f32[4,8]{1,0}) while(%copy.1), condition=%less, body=%inner, \
metadata={op_name="jit(step)/transpose(jvp(decoder_scan))/while/body/checkpoint/\
rematted_computation/while"}
}

%often (state.4: (s32[], f32[4,8])) -> pred[] {
  %state.4 = (s32[], f32[4,8]{1,0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

%quiet (q: f32[4,8]) -> f32[4,8] {
  %q = f32[4,8]{1,0} parameter(0)
  ROOT %negated = f32[4,8]{1,0} negate(%q)
}

%loud (r: f32[4,8]) -> f32[4,8] {
  %r = f32[4,8]{1,0} parameter(0)
  %sent = (f32[4,8]{1,0}, f32[4,8]{1,0}) collective-permute-start(%r), \
source_target_pairs={{0,1}}
  ROOT %swapped = f32[4,8]{1,0} collective-permute-done(%sent)
}

ENTRY %main (a: f32[4,8]) -> f32[4,8] {
  %a = f32[4,8]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %start = (f32[4,8]{1,0}, f32[16,8]{1,0}) all-gather-start(%a), dimensions={0}
  %gathered = f32[16,8]{1,0} all-gather-done(%start)
  %gemm = (f32[4,8]{1,0}, s8[64]{0}) custom-call(%a, %a), \
custom_call_target="__cublas$gemm", metadata={op_name="jit(step)/dot (x)"}
  %branch = f32[4,8]{1,0} conditional(%zero, %a, %a), \
branch_computations={%quiet, %loud}
  %first = (s32[], f32[4,8]{1,0}) tuple(%zero, %branch)
  %loop.1 = (s32[], f32[4,8]{1,0}) while(%first), condition=%less, body=%outer, \
metadata={op_name="jit(step)/transpose(jvp(decoder_scan))/while"}, \
backend_config={"known_trip_count":{"n":"3"},"estimated_cycles":"5"}
  %loop.3 = (s32[], f32[4,8]{1,0}) while(%loop.1), condition=%often, body=%inner, \
metadata={op_name="jit(_shared)/search_loop/while"}
  ROOT %result = f32[4,8]{1,0} get-tuple-element(%loop.3), index=1
}
"""
SIZE = 4 * 8 * 4  # bytes of most arrays above


@pytest.fixture(scope="module")
def program() -> hlo.Program:
    return hlo.read(TEXT)


def operation(program: hlo.Program, name: str) -> hlo.Operation:
    return next(
        one for ops in program.computations.values() for one in ops if one.name == name
    )


def test_every_line_is_read(program):
    assert program.entry == "main"
    lines = [line for line in TEXT.splitlines() if " = " in line]
    assert sum(map(len, program.computations.values())) == len(lines)
    gemm = operation(program, "gemm")
    assert (gemm.code, gemm.operands) == ("custom-call", ("a", "a"))
    assert gemm.source == "jit(step)/dot (x)"
    assert gemm.attribute("custom_call_target") == "__cublas$gemm"
    assert [one.name for one in program["put"] if one.root] == ["update"]


def test_sizes_are_those_of_the_types(program):
    sizes = {
        "gemm": SIZE,  # and room to work in
        "w.1": 8 * 8 * 2,
        "going": 1,
        "i.1": 4,
        "start": SIZE + 4 * SIZE,
        "state.1": 4 + SIZE,
    }
    for name, size in sizes.items():
        assert operation(program, name).bytes == size


def test_an_update_in_place_writes_what_is_new(program):
    kept = operation(program, "kept")
    assert kept.bytes == 7 * SIZE
    assert program.written(kept, "inner") == SIZE


def test_a_start_writes_what_its_end_gives(program):
    start = operation(program, "start")
    assert start.bytes == SIZE + 4 * SIZE  # what is gathered, too
    assert program.written(start, "main") == 4 * SIZE
    (outside, *_) = sections(program)  # with both branches, of which one exchanges
    assert outside.written_bytes == (4 + 1 + 1 + 1) * SIZE


def test_loops_are_found_with_what_a_turn_does(program):
    outside, outer, inner, search = sections(program)
    assert [part.depth for part in (outside, outer, inner, search)] == [0, 1, 2, 1]
    assert [part.turns for part in (outside, outer, inner)] == [1, 3, 3 * 7]
    assert search.turns is None  # its condition has no bound
    assert outer.name == "decoder, backward"
    assert inner.name == "decoder, forward again"
    assert search.name == "search"
    # all-gather-start, custom-call, and both branches
    assert (outside.kernels, outside.products) == (4, 1)
    assert (outer.kernels, outer.products) == (1, 0)
    assert (inner.kernels, inner.products) == (3, 1)
    assert inner.written_bytes == 3 * SIZE
    assert inner.kinds["fusion kLoop"] == 1


def test_collectives_are_found_in_branches_and_loops(program):
    outside, outer, inner, _ = sections(program)
    assert outside.collectives == (
        Collective("all-gather", 4 * SIZE),
        Collective("collective-permute", SIZE),
    )
    assert outer.collectives == ()
    assert inner.collectives == (Collective("all-reduce", SIZE),)


def test_cycles_are_those_of_all_turns(program):
    parts = sections(program)
    assert [part.cycles for part in parts] == [5, 10, 100, 100]
    assert cycles(parts) == 5 + 3 * 10 + 21 * 100 + 100
    assert cycles(sections(hlo.read(TEXT.replace("estimated", "guessed")))) is None
