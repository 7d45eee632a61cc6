//! What the planner answered: plans by problem, families of plans by structure.

use highwater_graph::Mixer;
use highwater_plan::{Families, Home, Plan, Policy, Problem, ProblemError};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Chosen plans by problem, and the decisions behind them by structure: a problem with the edges of
/// one that was planned, but other sizes (another length of the sequences), takes over its
/// decisions and only packs anew. A hit compares the whole problem, so a hash that collides costs
/// time, never correctness. Beside each plan lies what was said about it, a `T`.
#[derive(Debug)]
pub(crate) struct PlanCache<T> {
    /// Least recently used first.
    plans: Vec<CachedPlan<T>>,
    /// Least recently used first.
    families: Vec<CachedFamily>,
    /// Hashes of problems that nothing was found for, and the budgets, newest last.
    refused: Vec<(u64, u64)>,
    /// What was decided from nothing, newest last, if that is to be told others.
    searched: Option<Vec<CachedFamily>>,
}

#[derive(Debug)]
struct CachedPlan<T> {
    hash: u64,
    /// The same without seconds.
    untimed: u64,
    policy: Policy,
    problem: Arc<Problem>,
    plan: Arc<Plan>,
    /// From this budget on there is a faster plan.
    faster_from: u64,
    /// What was said about it.
    told: Option<Arc<T>>,
}

#[derive(Debug, Clone)]
struct CachedFamily {
    structure: u64,
    policy: Policy,
    bytes: u64,
    /// What they were made for.
    problem: Arc<Problem>,
    family: Arc<Families>,
}

impl CachedFamily {
    fn new(family: &Arc<Families>, problem: &Arc<Problem>, policy: Policy) -> Self {
        Self {
            structure: structure(problem),
            policy,
            bytes: bytes(problem),
            problem: Arc::clone(problem),
            family: Arc::clone(family),
        }
    }
}

/// The planner's answer.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Fits(Arc<Plan>, About<T>),
    /// Nothing fits.
    Refused(Arc<Families>),
}

/// A family, the plan chosen from it, and the budget from which on there is a faster one.
type Decided = (Arc<Families>, (Plan, u64));

/// What is known about a plan.
#[derive(Debug)]
pub(crate) enum About<T> {
    /// It was chosen before: what was said about it then.
    Told(Arc<T>),
    /// Nobody has verified it yet: its family.
    New(Arc<Families>),
}

/// More than any budget that is stated; see [`crate::Builder::memory`].
const UNSTATED: u64 = u64::MAX / 8;
/// The most plans that are remembered.
const PLANS: usize = 32;
/// So many times the bytes of the problem that they were made for, decisions are carried over.
const LARGER: u64 = 2;
/// The share of a plan's seconds that recomputes, up to which decisions are carried over.
const CARRIED: f64 = 0.25;
/// The most structures whose decisions are remembered.
const FAMILIES: usize = 4;
/// The same where values may be moved: there are decisions at three prices of that.
const MOVED_FAMILIES: usize = 2;
/// The most nodes of what is remembered, together, or so many times those of the largest: the heap has
/// room for that.
const NODES: usize = 8_000;
const LARGEST: usize = 4;
/// The same of searches that are kept for others.
const SEARCHED_NODES: usize = 2_000;
const LARGEST_SEARCHED: usize = 2;

impl<T> Clone for CachedPlan<T> {
    fn clone(&self) -> Self {
        Self {
            problem: Arc::clone(&self.problem),
            plan: Arc::clone(&self.plan),
            told: self.told.clone(),
            ..*self
        }
    }
}

impl<T> Default for PlanCache<T> {
    fn default() -> Self {
        Self {
            plans: Vec::new(),
            families: Vec::new(),
            refused: Vec::new(),
            searched: None,
        }
    }
}

impl<T> PlanCache<T> {
    /// One that remembers the same plans and decisions.
    pub(crate) fn inherited(&self) -> Self {
        Self {
            plans: self.plans.clone(),
            families: self.families.clone(),
            refused: Vec::new(),
            searched: self.searched.clone(),
        }
    }

    /// One that comes to the same plans as one that remembers nothing, without the searches that this
    /// one did.
    pub(crate) fn searches(&self) -> Self {
        Self {
            searched: self.searched.clone(),
            ..Self::default()
        }
    }

    /// Whether all searches are remembered, which takes memory, for [`PlanCache::searches`].
    pub(crate) fn keeping_searches(self, keep: bool) -> Self {
        let searched = keep.then(|| self.searched.unwrap_or_default());
        Self { searched, ..self }
    }

    /// A family whose decisions are made from nothing: the one there is of the same problem, or this.
    fn decided_anew(
        &mut self,
        family: Families,
        problem: &Arc<Problem>,
        policy: Policy,
    ) -> Arc<Families> {
        let searched = self.searched.iter().flatten();
        let same = |known: &&CachedFamily| known.policy == policy && known.problem == *problem;
        if let Some(known) = searched.rev().find(same) {
            return Arc::clone(&known.family);
        }
        let family = Arc::new(family);
        if let Some(searched) = &mut self.searched {
            searched.push(CachedFamily::new(&family, problem, policy));
            let most = (SEARCHED_NODES, LARGEST_SEARCHED);
            trim(searched, PLANS, most, |known| known.problem.nodes.len());
        }
        family
    }

    /// The fastest plan of a problem that fits, found or made. `before_planning` runs before a
    /// family is built, which takes memory.
    pub(crate) fn choose(
        &mut self,
        problem: &Arc<Problem>,
        policy: Policy,
        budget: u64,
        before_planning: impl FnOnce(),
    ) -> Result<Answer<T>, ProblemError> {
        if let Some((plan, told)) = self.known(problem, policy, budget, |_| true) {
            return Ok(Answer::Fits(plan, About::Told(told)));
        }
        before_planning();
        let family = Families::build(problem, policy)?;
        let (family, plan, faster_from) = match at_once(&family, problem, budget) {
            Some(plan) => (Arc::new(family), plan, u64::MAX),
            None => match self.decide(family, problem, policy, budget) {
                Ok((family, (plan, faster_from))) => (family, plan, faster_from),
                Err(family) => return Ok(Answer::Refused(family)),
            },
        };
        let plan = Arc::new(plan);
        let (hash, untimed) = (hash(problem), untimed(problem).finish());
        // Corrected times replace earlier ones: nobody asks for those again, and their plans take memory.
        let is_outdated = |entry: &CachedPlan<T>| entry.untimed == untimed && entry.hash != hash;
        self.plans.retain(|entry| !is_outdated(entry));
        self.plans.push(CachedPlan {
            hash,
            untimed,
            policy,
            problem: Arc::clone(problem),
            plan: Arc::clone(&plan),
            faster_from,
            told: None,
        });
        let nodes = |entry: &CachedPlan<T>| entry.problem.nodes.len();
        trim(&mut self.plans, PLANS, (NODES, LARGEST), nodes);
        Ok(Answer::Fits(plan, About::New(family)))
    }

    /// Notes that nothing was found for a problem.
    pub(crate) fn note_refused(&mut self, problem: &Problem, budget: u64) {
        self.refused.push((hash(problem), budget));
        trim(&mut self.refused, PLANS, (NODES, LARGEST), |_| 0);
    }

    /// Whether that was noted, for this budget or a larger one. Two problems that collide are taken for
    /// each other: good enough where something else is tried first then.
    pub(crate) fn was_refused(&self, problem: &Problem, budget: u64) -> bool {
        if self.refused.is_empty() {
            return false;
        }
        let hash = hash(problem);
        let mut refused = self.refused.iter();
        refused.any(|&(of, at)| of == hash && budget <= at)
    }

    /// The plan that was chosen for a problem and a budget, if it is acceptable.
    pub(crate) fn known(
        &mut self,
        problem: &Arc<Problem>,
        policy: Policy,
        budget: u64,
        accept: impl Fn(&Plan) -> bool,
    ) -> Option<(Arc<Plan>, Arc<T>)> {
        let hash = hash(problem);
        // Without a word on it, a plan was never verified either.
        let known = |entry: &CachedPlan<T>| {
            let fits = entry.told.is_some()
                && (entry.plan.memory_bytes()..entry.faster_from).contains(&budget);
            let same = entry.hash == hash && entry.policy == policy && entry.problem == *problem;
            fits && same && accept(&entry.plan)
        };
        let index = self.plans.iter().rposition(known)?;
        self.plans[index..].rotate_left(1);
        let entry = self.plans.last()?;
        Some((Arc::clone(&entry.plan), Arc::clone(entry.told.as_ref()?)))
    }

    /// The fastest plan that fits by decisions that are known, or else by new ones. The error is a family
    /// in which nothing fits.
    fn decide(
        &mut self,
        family: Families,
        problem: &Arc<Problem>,
        policy: Policy,
        budget: u64,
    ) -> Result<Decided, Arc<Families>> {
        if let Some(known) = self.refused_with_more_room(problem, policy, budget) {
            return Err(known);
        }
        let is_hopeless = family.is_hopeless(budget);
        if let Some((known, exact)) = self.adapted(&family, problem, policy) {
            match fastest(&known, problem, budget) {
                Some(chosen) if exact || is_loose(&chosen.0) => return Ok((known, chosen)),
                None if exact => return Err(known),
                // Decisions made for other sizes are no reason to refuse, nor to compute much again.
                Some(_) | None => {}
            }
        }
        let family = self.decided_anew(family, problem, policy);
        // What would do is looked for when somebody asks.
        let chosen = if is_hopeless {
            None
        } else {
            fastest(&family, problem, budget)
        };
        self.remember(&family, problem, policy);
        chosen.map_or(Err(Arc::clone(&family)), |chosen| Ok((family, chosen)))
    }

    /// The family of a problem with all that there is to decide: known, adapted or new.
    /// `before_planning` runs before one is made, which takes memory.
    ///
    /// # Errors
    /// If the problem makes no sense.
    pub(crate) fn family(
        &mut self,
        problem: &Arc<Problem>,
        policy: Policy,
        before_planning: impl FnOnce(),
    ) -> Result<Arc<Families>, ProblemError> {
        before_planning();
        let family = Families::build(problem, policy)?;
        if let Some((known, _)) = self.adapted(&family, problem, policy) {
            return Ok(known);
        }
        let family = self.decided_anew(family, problem, policy);
        self.remember(&family, problem, policy);
        Ok(family)
    }

    /// A family in which nothing fits, of the same problem with as much room on tiers or more, if there is
    /// one. Cells that make way change that room, and little else.
    fn refused_with_more_room(
        &self,
        problem: &Problem,
        policy: Policy,
        budget: u64,
    ) -> Option<Arc<Families>> {
        if !problem.tiers.any() {
            return None;
        }
        let refuses = |known: &&CachedFamily| {
            let same = known.policy == policy && problem.is_with_less_room(&known.problem);
            same && known.family.floor(&known.problem).arena_bytes > budget
        };
        let known = self.families.iter().rev().find(refuses)?;
        Some(Arc::clone(&known.family))
    }

    /// Remembers what was said about a plan.
    pub(crate) fn note(&mut self, plan: &Arc<Plan>, told: &Arc<T>) {
        let mut entries = self.plans.iter_mut().rev();
        if let Some(entry) = entries.find(|entry| Arc::ptr_eq(&entry.plan, plan)) {
            entry.told = Some(Arc::clone(told));
        }
    }

    /// The decisions made for a problem of the same structure that was not much smaller, and whether
    /// it was this very problem.
    fn adapted(
        &mut self,
        family: &Families,
        problem: &Arc<Problem>,
        policy: Policy,
    ) -> Option<(Arc<Families>, bool)> {
        if self.families.is_empty() {
            return None;
        }
        let (structure, bytes) = (structure(problem), bytes(problem));
        let known = |known: &CachedFamily| {
            let like = known.structure == structure && known.policy == policy;
            like && bytes <= LARGER * known.bytes
        };
        let index = self.families.iter().rposition(known)?;
        self.families[index..].rotate_left(1);
        let known = self.families.last()?;
        if known.problem == *problem {
            return Some((Arc::clone(&known.family), true));
        }
        let family = family.adapt(&known.family)?;
        Some((Arc::new(family), false))
    }

    /// Forgets all families but the newest so many. Plans stay: they are small, and are found without.
    pub(crate) fn forget_families(&mut self, but: usize) {
        let older = self.families.len().saturating_sub(but);
        self.families.drain(..older);
    }

    /// Remembers decisions, in place of those for other sizes.
    fn remember(&mut self, family: &Arc<Families>, problem: &Arc<Problem>, policy: Policy) {
        let decided = CachedFamily::new(family, problem, policy);
        let same = |known: &CachedFamily| {
            known.structure == decided.structure && known.policy == decided.policy
        };
        self.families.retain(|known| !same(known));
        self.families.push(decided);
        let most = if problem.tiers.any() {
            MOVED_FAMILIES
        } else {
            FAMILIES
        };
        let nodes = |known: &CachedFamily| known.problem.nodes.len();
        trim(&mut self.families, most, (NODES, LARGEST), nodes);
    }
}

/// The plan that keeps all, if it fits: nothing has to be decided for it. Where no budget was stated,
/// what costs next to nothing to recompute is not kept.
fn at_once(family: &Families, problem: &Problem, budget: u64) -> Option<Plan> {
    let kept = family.all_kept(problem, budget)?;
    if budget > UNSTATED {
        return family.thrifty(problem);
    }
    Some(kept)
}

/// The fastest plan that fits, and the budget from which on there may be another. Where no budget was
/// stated, nothing is kept that costs next to nothing to recompute.
fn fastest(family: &Families, problem: &Problem, budget: u64) -> Option<(Plan, u64)> {
    if budget > UNSTATED {
        return family.thrifty(problem).map(|plan| (plan, u64::MAX));
    }
    family.choose_until(problem, budget).ok()
}

/// Whether a plan recomputes so little that it hardly matters for which sizes that was decided.
fn is_loose(plan: &Plan) -> bool {
    plan.recompute_seconds <= CARRIED * plan.seconds
}

/// Forgets what was not used for longest, as long as there is too much: more than `count`, more nodes than
/// `most` says, at least and as a multiple of those of the largest.
fn trim<T>(list: &mut Vec<T>, count: usize, most: (usize, usize), nodes: impl Fn(&T) -> usize) {
    let largest = list.iter().map(&nodes).max().unwrap_or(0);
    let most = most.0.max(most.1 * largest);
    while list.len() > count || list.iter().map(&nodes).sum::<usize>() > most {
        list.remove(0);
    }
}

/// Everything that a plan depends on.
fn hash(problem: &Problem) -> u64 {
    let mut hasher = untimed(problem);
    for node in &problem.nodes {
        node.seconds.to_bits().hash(&mut hasher);
    }
    hasher.finish()
}

/// The same without seconds.
fn untimed(problem: &Problem) -> Mixer {
    let mut hasher = Mixer::default();
    problem.values.hash(&mut hasher);
    for node in &problem.nodes {
        (&node.inputs, &node.outputs, &node.reads, &node.writes).hash(&mut hasher);
        (&node.rewrites, node.scratch_bytes, node.done).hash(&mut hasher);
    }
    hasher
}

/// Everything but sizes and seconds.
fn structure(problem: &Problem) -> u64 {
    let mut hasher = Mixer::default();
    problem.tiers.any().hash(&mut hasher);
    for value in &problem.values {
        let home = std::mem::discriminant(&value.home);
        let tier = match value.home {
            Home::Cell(tier) => tier,
            _ => None,
        };
        (home, tier, value.pin, value.wanted, value.bytes == 0).hash(&mut hasher);
    }
    for node in &problem.nodes {
        (&node.inputs, &node.outputs, &node.reads, &node.writes).hash(&mut hasher);
        (node.effect, node.soft, node.lane, node.done).hash(&mut hasher);
        (&node.in_place, &node.rewrites).hash(&mut hasher);
    }
    hasher.finish()
}

/// All that a problem's values take.
fn bytes(problem: &Problem) -> u64 {
    problem.values.iter().map(|value| value.bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_plan::{Node, Pin, Value, ValueId};

    fn node(inputs: &[usize], outputs: &[usize]) -> Node {
        let ids = |list: &[usize]| -> Vec<_> { list.iter().copied().map(ValueId::new).collect() };
        Node::new(&ids(inputs), &ids(outputs), 1.0)
    }

    /// Values that each other one makes, and that are read again the other way round: as many of them
    /// as a sequence is long.
    fn unrolled(length: usize, bytes: u64) -> Arc<Problem> {
        let value = |home| Value {
            bytes,
            home,
            pin: Pin::Free,
            wanted: false,
        };
        let mut values = vec![value(Home::Arena); 2 * length];
        values[0] = value(Home::External);
        let forward = (1..length).map(|v| node(&[v - 1], &[v]));
        let gradient = |v: usize| 2 * length - 1 - v;
        let backward = (0..length).rev().map(|v| match v + 1 {
            last if last == length => node(&[v], &[gradient(v)]),
            next => node(&[v, gradient(next)], &[gradient(v)]),
        });
        Arc::new(Problem {
            nodes: forward.chain(backward).collect(),
            values,
            ..Problem::default()
        })
    }

    /// The plan for a budget, and the family behind it; every problem is new.
    fn chosen(cache: &mut PlanCache<()>, problem: &Arc<Problem>, budget: u64) -> (Arc<Plan>, bool) {
        let answer = cache.choose(problem, Policy::Auto, budget, || {});
        let Ok(Answer::Fits(plan, About::New(family))) = answer else {
            panic!("a new plan that fits");
        };
        (plan, family.is_searched())
    }

    #[test]
    fn lengths_in_turn_are_planned_at_once_where_all_fits() {
        let mut cache = PlanCache::default();
        for length in (20..40).chain(20..40) {
            let problem = unrolled(length, 640);
            let (plan, searched) = chosen(&mut cache, &problem, 1 << 20);
            assert!(!searched && plan.recomputed_nodes == 0);
        }
        assert!(cache.families.is_empty(), "nothing had to be decided");
    }

    #[test]
    fn what_was_searched_is_not_searched_again_and_decides_nothing_else() {
        let mut cache = PlanCache::default().keeping_searches(true);
        let (small, large) = (unrolled(40, 640), unrolled(40, 704));
        let (_, of_small) = (
            chosen(&mut cache, &small, 34 * 640),
            &cache.families[0].family,
        );
        let of_small = Arc::clone(of_small);
        let mut other: PlanCache<()> = cache.searches();
        assert!(other.families.is_empty());
        // Nothing is carried over to another size, as nothing would be without the searches.
        let anew = chosen(&mut PlanCache::default(), &large, 34 * 704);
        assert_eq!(chosen(&mut other, &large, 34 * 704), anew);
        let mut other: PlanCache<()> = cache.searches();
        chosen(&mut other, &small, 33 * 640);
        assert!(Arc::ptr_eq(&other.families[0].family, &of_small));
    }

    #[test]
    fn where_nothing_is_stated_nothing_is_searched() {
        let mut cache = PlanCache::default();
        let (plan, searched) = chosen(&mut cache, &unrolled(30, 640), u64::MAX);
        assert!(!searched && plan.recomputed_nodes == 0);
    }

    #[test]
    fn sizes_in_turn_share_what_was_decided() {
        let mut cache = PlanCache::default();
        let less = |bytes: u64| 34 * bytes;
        let (first, searched) = chosen(&mut cache, &unrolled(40, 640), less(640));
        assert!(searched && first.recomputed_nodes > 0);
        let decided = Arc::clone(&cache.families[0].family);
        for bytes in [704, 768, 832] {
            let (plan, _) = chosen(&mut cache, &unrolled(40, bytes), less(bytes));
            assert!(plan.recomputed_nodes > 0);
        }
        assert!(Arc::ptr_eq(&cache.families[0].family, &decided));
        assert_eq!(cache.families.len(), 1);
    }
}
