//! Plans that are tampered with. Each kind of mutation is wrong by construction; what could be
//! harmless is never made.

use super::random::Source;
use highwater_plan::*;

/// What an instruction runs, if anything.
fn node(plan: &Plan, i: usize) -> Option<NodeId> {
    match plan.instructions[i].action {
        Action::Run { node, .. } | Action::Guard { node } => Some(node),
        _ => None,
    }
}

/// A value's stay in the arena, up to and including the instruction that ends it.
#[derive(Clone, Copy)]
struct Stay {
    value: ValueId,
    offset: u64,
    bytes: u64,
    from: usize,
    to: usize,
    /// Which output of the run at `from`; none for residents.
    output: Option<usize>,
    /// Whether it shares its bytes with the value before or after it.
    shared: bool,
}

/// All stays, worked out here and not by the planner or the verifier.
fn stays(problem: &Problem, plan: &Plan) -> Vec<Stay> {
    let mut all: Vec<Stay> = Vec::new();
    let mut open: Vec<Option<usize>> = vec![None; problem.values.len()];
    let end = plan.instructions.len();
    for (value, v) in ValueId::numbered(&problem.values) {
        if let Home::Resident { offset } = v.home {
            open[value.index()] = Some(all.len());
            let bytes = v.bytes;
            all.push(Stay {
                value,
                offset,
                bytes,
                from: 0,
                to: end,
                output: None,
                shared: false,
            });
        }
    }
    for (i, instruction) in plan.instructions.iter().enumerate() {
        match &instruction.action {
            Action::Free { value } => {
                all[open[value.index()].take().expect("there")].to = i;
            }
            Action::Run { node, outputs, .. } => {
                let n = &problem.nodes[node.index()];
                for (o, (&value, place)) in n.outputs.iter().zip(outputs).enumerate() {
                    let Some(offset) = *place else { continue };
                    let bytes = problem.values[value.index()].bytes;
                    let input = n.inputs.iter().find(|&&u| {
                        bytes > 0
                            && open[u.index()]
                                .is_some_and(|s| all[s].bytes == bytes && all[s].offset == offset)
                    });
                    if let Some(&u) = input {
                        let s = open[u.index()].take().expect("just seen");
                        (all[s].to, all[s].shared) = (i, true);
                    }
                    open[value.index()] = Some(all.len());
                    let (output, shared) = (Some(o), input.is_some());
                    all.push(Stay {
                        value,
                        offset,
                        bytes,
                        from: i,
                        to: end,
                        output,
                        shared,
                    });
                }
            }
            _ => {}
        }
    }
    all
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.1 > 0 && b.1 > 0 && a.0 < b.0 + b.1 && b.0 < a.0 + a.1
}

/// A tamperer: a problem, a sound plan and a source of choices.
struct Tamper {
    problem: Problem,
    plan: Plan,
    stays: Vec<Stay>,
    source: Source,
}

impl Tamper {
    fn pick<T: Copy>(&mut self, list: &[T]) -> Option<T> {
        (!list.is_empty()).then(|| list[self.source.below(list.len())])
    }

    fn runs(&self) -> Vec<usize> {
        let run = |&i: &usize| matches!(self.plan.instructions[i].action, Action::Run { .. });
        (0..self.plan.instructions.len()).filter(run).collect()
    }

    fn frees(&self) -> Vec<usize> {
        let free = |&i: &usize| matches!(self.plan.instructions[i].action, Action::Free { .. });
        (0..self.plan.instructions.len()).filter(free).collect()
    }

    fn without(&self, i: usize) -> Plan {
        let mut plan = self.plan.clone();
        plan.instructions.remove(i);
        plan
    }

    fn twice(&self, i: usize) -> Plan {
        let mut plan = self.plan.clone();
        plan.instructions.insert(i, plan.instructions[i].clone());
        plan
    }

    fn moved(&self, from: usize, to: usize) -> Plan {
        let mut plan = self.plan.clone();
        let instruction = plan.instructions.remove(from);
        plan.instructions
            .insert(to - usize::from(from < to), instruction);
        plan
    }

    fn placed(&self, stay: Stay, offset: Option<u64>) -> Plan {
        let mut plan = self.plan.clone();
        let output = stay.output.expect("only what a run places is moved");
        if let Action::Run { outputs, .. } = &mut plan.instructions[stay.from].action {
            outputs[output] = offset;
        }
        plan
    }

    fn placed_stays(&self) -> Vec<Stay> {
        self.stays
            .iter()
            .copied()
            .filter(|s| s.output.is_some())
            .collect()
    }

    fn reads(&self, i: usize, v: ValueId) -> bool {
        node(&self.plan, i).is_some_and(|n| self.problem.nodes[n.index()].inputs.contains(&v))
    }

    /// A run moved away; its outputs are missing afterwards.
    fn dropped_run(&mut self) -> Option<Plan> {
        let placed: Vec<usize> = self.placed_stays().iter().map(|s| s.from).collect();
        self.pick(&placed).map(|i| self.without(i))
    }

    fn dropped_free(&mut self) -> Option<Plan> {
        let frees = self.frees();
        self.pick(&frees).map(|i| self.without(i))
    }

    fn double_free(&mut self) -> Option<Plan> {
        let frees = self.frees();
        self.pick(&frees).map(|i| self.twice(i))
    }

    /// A free moved before the last run that reads the value.
    fn early_free(&mut self) -> Option<Plan> {
        let frees = self.frees();
        let free = self.pick(&frees)?;
        let Action::Free { value } = self.plan.instructions[free].action else {
            return None;
        };
        let reader = (0..free).rev().find(|&i| self.reads(i, value))?;
        let here = |s: &&Stay| s.value == value && s.to == free;
        let stay = self.stays.iter().find(here)?;
        Some(self.moved(free, reader.max(stay.from)))
    }

    fn once_twice(&mut self) -> Option<Plan> {
        let once = |&i: &usize| {
            node(&self.plan, i)
                .is_some_and(|n| self.problem.nodes[n.index()].effect != Effect::Repeatable)
        };
        let list: Vec<usize> = (0..self.plan.instructions.len()).filter(once).collect();
        self.pick(&list).map(|i| self.twice(i))
    }

    fn misaligned(&mut self) -> Option<Plan> {
        let stays = self.placed_stays();
        let stay = self.pick(&stays)?;
        Some(self.placed(stay, Some(stay.offset + 32)))
    }

    fn no_place(&mut self) -> Option<Plan> {
        let stays = self.placed_stays();
        self.pick(&stays).map(|stay| self.placed(stay, None))
    }

    /// A value put onto one that is alive and no input of its node.
    fn onto_neighbour(&mut self) -> Option<Plan> {
        let stays = self.placed_stays();
        let stay = self.pick(&stays)?;
        let other = |s: &&Stay| {
            s.from < stay.from
                && s.to > stay.from
                && s.bytes > 0
                && stay.bytes > 0
                && !self.reads(stay.from, s.value)
        };
        let others: Vec<Stay> = self.stays.iter().filter(other).copied().collect();
        let other = self.pick(&others)?;
        Some(self.placed(stay, Some(other.offset)))
    }

    /// Two values exchange their places, where one then meets a third.
    fn swapped(&mut self) -> Option<Plan> {
        let plain = |s: &Stay| {
            let n = node(&self.plan, s.from).expect("placed by a run");
            !s.shared && s.bytes > 0 && self.problem.nodes[n.index()].in_place.is_empty()
        };
        let stays: Vec<Stay> = self.placed_stays().into_iter().filter(plain).collect();
        let (a, b) = (self.pick(&stays)?, self.pick(&stays)?);
        let met = |s: Stay, offset: u64| {
            self.stays.iter().any(|t| {
                let apart = (t.from, t.value) == (a.from, a.value)
                    || (t.from, t.value) == (b.from, b.value);
                let (from, to) = (t.from.max(s.from), t.to.min(s.to));
                !apart && from < to && overlap((offset, s.bytes), (t.offset, t.bytes))
            })
        };
        if !met(a, b.offset) && !met(b, a.offset) {
            return None;
        }
        let mut plan = self.placed(a, Some(b.offset));
        if let Action::Run { outputs, .. } = &mut plan.instructions[b.from].action {
            outputs[b.output?] = Some(a.offset);
        }
        Some(plan)
    }

    /// An update moved before the last reader, or the maker, of the version that it replaces.
    fn stale(&mut self) -> Option<Plan> {
        let updates: Vec<usize> = self
            .runs()
            .into_iter()
            .filter(|&i| {
                !self.problem.nodes[node(&self.plan, i).expect("a run").index()]
                    .writes
                    .is_empty()
            })
            .collect();
        let update = self.pick(&updates)?;
        let written = &self.problem.nodes[node(&self.plan, update)?.index()].writes;
        let makes = |&(cell, version): &(CellId, Version)| written.contains(&(cell, version + 1));
        let earlier = (0..update).rev().find(|&i| {
            node(&self.plan, i).is_some_and(|n| {
                let n = &self.problem.nodes[n.index()];
                n.reads.iter().any(|read| written.contains(read)) || n.writes.iter().any(makes)
            })
        })?;
        Some(self.moved(update, earlier))
    }

    /// A guard moved behind the first write.
    fn late_guard(&mut self) -> Option<Plan> {
        let guards: Vec<usize> = (0..self.plan.instructions.len())
            .filter(|&i| matches!(self.plan.instructions[i].action, Action::Guard { .. }))
            .collect();
        let guard = self.pick(&guards)?;
        let write = self.runs().into_iter().find(|&i| {
            let n = node(&self.plan, i).expect("a run");
            !self.problem.nodes[n.index()].writes.is_empty()
        })?;
        Some(self.moved(guard, write + 1))
    }

    /// A run moved before the one that makes its input.
    fn reordered(&mut self) -> Option<Plan> {
        let stays = self.placed_stays();
        let stay = self.pick(&stays)?;
        let reader = (stay.from + 1..self.plan.instructions.len())
            .find(|&i| i <= stay.to && self.reads(i, stay.value))?;
        Some(self.moved(reader, stay.from))
    }

    fn scratch_on_value(&mut self) -> Option<Plan> {
        let mut runs = self.runs();
        runs.retain(|&i| {
            matches!(
                self.plan.instructions[i].action,
                Action::Run {
                    scratch: Some(_),
                    ..
                }
            )
        });
        let i = self.pick(&runs)?;
        let alive = |s: &&Stay| s.from < i && s.to > i && s.bytes > 0;
        let others: Vec<Stay> = self.stays.iter().filter(alive).copied().collect();
        let other = self.pick(&others)?;
        let mut plan = self.plan.clone();
        match &mut plan.instructions[i].action {
            Action::Run {
                scratch: Some(scratch),
                ..
            } => *scratch = other.offset,
            _ => return None,
        }
        Some(plan)
    }

    fn form(&mut self) -> Option<Plan> {
        let mut plan = self.plan.clone();
        let i = self.source.below(plan.instructions.len());
        match self.source.below(4) {
            0 => plan.instructions[i].lane = Lane::Read,
            1 => plan.instructions[i].waits.push(i as u32),
            2 => plan.arena_bytes -= 64,
            _ => match plan.residents.pop() {
                Some(_) => {}
                None => return None,
            },
        }
        Some(plan)
    }
}

fn is_figure(violation: &Violation) -> bool {
    matches!(
        violation,
        Violation::WrongLiveBytes { .. }
            | Violation::WrongPeak { .. }
            | Violation::WrongRepetitions { .. }
            | Violation::WrongSeconds { .. }
    )
}

/// How often each kind of mutation was tried.
pub(crate) type Counts = [usize; 14];

type Kind = (&'static str, fn(&mut Tamper) -> Option<Plan>);

const KINDS: [Kind; 14] = [
    ("dropped run", Tamper::dropped_run),
    ("dropped free", Tamper::dropped_free),
    ("double free", Tamper::double_free),
    ("early free", Tamper::early_free),
    ("once twice", Tamper::once_twice),
    ("misaligned", Tamper::misaligned),
    ("no place", Tamper::no_place),
    ("onto neighbour", Tamper::onto_neighbour),
    ("swapped", Tamper::swapped),
    ("stale", Tamper::stale),
    ("late guard", Tamper::late_guard),
    ("reordered", Tamper::reordered),
    ("scratch on value", Tamper::scratch_on_value),
    ("form", Tamper::form),
];

/// Tampers with a sound plan of a problem, and holds the verifier to rejecting every result for what
/// is wrong with it; returns how often each kind was tried.
pub(crate) fn tamper(problem: &Problem, plan: &Plan, seed: u64, rounds: usize) -> Counts {
    let mut tried = Counts::default();
    verify(problem, plan, plan.arena_bytes).expect("the plan itself is sound");
    figures(problem, plan);
    let mut tamper = Tamper {
        stays: stays(problem, plan),
        source: Source(seed),
        problem: problem.clone(),
        plan: plan.clone(),
    };
    for _ in 0..rounds {
        for (k, (name, kind)) in KINDS.iter().enumerate() {
            let Some(bad) = kind(&mut tamper) else {
                continue;
            };
            tried[k] += 1;
            match verify(&tamper.problem, &bad, u64::MAX) {
                Ok(_) => panic!("{name}: accepted: {:#?}", bad.instructions),
                Err(e) => assert!(!is_figure(&e), "{name}: found only by its figures: {e}"),
            }
        }
    }
    tried
}

/// Wrong figures, and a budget too small.
fn figures(problem: &Problem, plan: &Plan) {
    let wrong = |change: fn(&mut Plan)| {
        let mut plan = plan.clone();
        change(&mut plan);
        let verdict = verify(problem, &plan, u64::MAX);
        assert!(verdict.as_ref().is_err_and(is_figure), "{verdict:?}");
    };
    wrong(|p| p.live_bytes += 1);
    wrong(|p| p.seconds = p.seconds * 1.001 + 0.001);
    wrong(|p| p.seconds = f64::NAN);
    wrong(|p| p.recomputed_nodes += 1);
    wrong(|p| p.recompute_seconds += 0.001);
    wrong(|p| p.peak_instruction = u32::MAX);
    let small = verify(problem, plan, plan.arena_bytes - 1);
    assert!(matches!(small, Err(Violation::OverBudget { .. })));
}
