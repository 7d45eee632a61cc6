//! Which values go: when each is needed, what making it again takes, and room for what comes.

use super::ranked::MANY;
use super::{Cost, DEPTH, Rule, UNNEEDED, Walk};
use crate::problem::{NodeId, ValueId};
use crate::program::Lock;
use crate::simulate::setting::KEEP;

impl Walk<'_> {
    /// Forgets what depends on whether a value is there: the cost of what is made from it, and the
    /// need of what it is made from.
    pub(super) fn forget(&mut self, v: ValueId) {
        let program = self.program;
        let own = &mut self.values[v.index()];
        (own.cost, own.need) = (None, None);
        let mut next = vec![v];
        while let Some(v) = next.pop() {
            for &n in self.all.readers.row(v) {
                for &o in program.outputs.row(n) {
                    self.looks += 1;
                    let life = &mut self.values[o.index()];
                    if life.cost.take().is_some() && !life.present {
                        next.push(o);
                    }
                }
            }
        }
        next.push(v);
        while let Some(v) = next.pop() {
            let Some(n) = program.producer[v.index()] else {
                continue;
            };
            for &i in program.inputs.row(n) {
                self.looks += 1;
                let life = &mut self.values[i.index()];
                if life.need.take().is_some() && !life.present {
                    next.push(i);
                }
            }
        }
    }

    /// The next step that needs a value: uses it, or makes something again from it.
    pub(super) fn need(&mut self, v: ValueId, depth: u32) -> u32 {
        let (program, life) = (self.program, self.values[v.index()]);
        if let Some(need) = life.need {
            return need;
        }
        let mut need = program.next_use(life.gap);
        if depth == 0 {
            return need.min(program.steps.len() as u32 - 1);
        }
        for &n in self
            .all
            .readers
            .row(v)
            .iter()
            .filter(|&&n| n < program.end())
        {
            self.looks += 1;
            if self.ran[n.index()] {
                for &o in program.outputs.row(n) {
                    if !self.values[o.index()].present {
                        need = need.min(self.need(o, depth - 1));
                    }
                }
            }
        }
        self.values[v.index()].need = Some(need);
        need
    }

    /// Whether a node may not run again at a step. Updates wait for it.
    pub(super) fn locked(&self, node: NodeId, step: u32) -> bool {
        step > self.until(node)
    }

    /// The last step at which a node may run again. Updates wait for it.
    fn until(&self, node: NodeId) -> u32 {
        let until = |lock: &Lock| match *lock {
            Lock::Gone => 0,
            Lock::Step(writer) => writer,
            Lock::Update(_) => u32::MAX,
        };
        let locks = self.program.locks.row(node).iter();
        locks.map(until).min().unwrap_or(u32::MAX)
    }

    /// Lets values go, cheapest first, until so many bytes fit; none if they cannot.
    pub(super) fn make_room(&mut self, bytes: u64) -> Option<()> {
        if self.bytes + bytes <= self.budget {
            return Some(());
        }
        if self.held.len() > MANY && self.is_ranked() && self.make_room_by_rank(bytes) {
            return Some(());
        }
        self.worth.clear();
        let mut free = 0;
        for i in 0..self.held.len() {
            let v = self.held[i];
            if let Some(worth) = self.worth(v) {
                self.worth.push((worth, v));
                free += self.program.size[v.index()];
            }
        }
        if self.bytes + bytes > self.budget + free {
            return None;
        }
        self.looks += self.held.len() as u64 / 4;
        while self.bytes + bytes > self.budget {
            let worth = self.worth.iter().enumerate();
            let least = worth.min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let at = least?.0;
            let (_, v) = self.worth.swap_remove(at);
            self.vanish(v);
        }
        Some(())
    }

    /// Seconds by bytes and time; none if the value must stay.
    pub(super) fn worth(&mut self, v: ValueId) -> Option<f64> {
        let life = &self.values[v.index()];
        if life.pins > 0 || life.pending > 0 || self.all.limits.high[life.gap] == KEEP {
            return None;
        }
        let (need, cost) = (life.need, life.cost);
        let need = need.unwrap_or_else(|| self.need(v, DEPTH));
        if need == UNNEEDED {
            return Some(0.0);
        }
        let cost = cost.unwrap_or_else(|| self.cost(v));
        if need > cost.until {
            return None;
        }
        let time = self.all.clock[need as usize] - self.all.clock[self.step as usize];
        let time = match self.rule {
            Rule::Time => time,
            Rule::Root => time.sqrt(),
            Rule::Bytes => 1.0,
        };
        Some(cost.dear / (time + 1e-12))
    }

    /// What it takes to make a value again with what has gone of its ancestors.
    fn cost(&mut self, v: ValueId) -> Cost {
        let program = self.program;
        let (mut seconds, mut until) = (0.0, u32::MAX);
        self.search += 1;
        let mut next = vec![v];
        while let Some(w) = next.pop() {
            self.values[w.index()].cost = Some(Cost::default());
            let producer = program.producer[w.index()].filter(|_| program.repeatable[w.index()]);
            let Some(n) = producer else {
                until = 0;
                continue;
            };
            if std::mem::replace(&mut self.seen[n.index()], self.search) == self.search {
                continue;
            }
            self.looks += 1;
            seconds += program.alone(n, w);
            until = until.min(self.until(n));
            let inputs = program.inputs.row(n).iter().copied();
            next.extend(inputs.filter(|&i| !self.values[i.index()].present));
        }
        let dear = seconds / self.program.size[v.index()] as f64;
        let cost = Cost { dear, until };
        self.values[v.index()].cost = Some(cost);
        cost
    }
}
