//! What the user pins: sequences of checkpoints, and a policy for each operation.

use highwater::nn::{Linear, Module};
use highwater::optim::{AdamW, AdamWOptions, Optimizer};
use highwater::plan::Choice;
use highwater::{
    Builder, CheckpointPolicy, Engine, Error, Forecast, Policy, Result, Tensor,
    checkpoint_sequential, checkpoint_with, scope,
};

const WIDTH: usize = 64;
const ROWS: usize = 32;
const BLOCKS: usize = 4;
const PLENTY: u64 = 1 << 40;

struct Block {
    up: Linear,
    down: Linear,
    index: usize,
}

impl Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        scope(&format!("h.{}", self.index), || {
            let up = scope("up", || self.up.forward(x)?.gelu())?;
            x.add(&scope("down", || self.down.forward(&up))?)
        })
    }
}

/// How the blocks are run.
type Run = fn(&[Block], &Tensor) -> Result<Tensor>;

/// Two steps: the bits of losses and weights.
fn train(builder: Builder, run: Run) -> Result<(Engine, Vec<u32>)> {
    let engine = builder.seed(5).build()?;
    let block = |index| {
        let linear = |a, b| Linear::new(&engine, a, b, true);
        Ok(Block {
            up: linear(WIDTH, 4 * WIDTH)?,
            down: linear(4 * WIDTH, WIDTH)?,
            index,
        })
    };
    let blocks: Vec<Block> = (0..BLOCKS).map(block).collect::<Result<_>>()?;
    let layers = blocks.iter().flat_map(|block| [&block.up, &block.down]);
    let parameters: Vec<_> = layers.flat_map(Module::parameters).collect();
    let mut adamw = AdamW::new(parameters.clone(), AdamWOptions::default())?;
    let data: Vec<f32> = (0..ROWS * WIDTH).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut bits = Vec::new();
    for _ in 0..2 {
        let x = engine.tensor(&data, [ROWS, WIDTH])?;
        let y = run(&blocks, &x)?;
        let loss = y.mul(&y)?.mean()?;
        loss.backward()?;
        adamw.step()?;
        if !engine.is_dry_run() {
            bits.push(loss.item()?.to_bits());
        }
    }
    if !engine.is_dry_run() {
        for parameter in &parameters {
            bits.extend(parameter.to_vec()?.into_iter().map(f32::to_bits));
        }
    }
    Ok((engine, bits))
}

fn plan(budget: u64, run: Run) -> Forecast {
    planned(Engine::builder().arena(budget), run)
}

/// The plan that recomputes nothing but what is pinned so.
fn pinned(run: Run) -> Forecast {
    // What is held at the end for guards is no matter of checkpoints.
    let builder = Engine::builder().policy(Policy::Keep);
    planned(builder.guard_gradients(false), run)
}

fn planned(builder: Builder, run: Run) -> Forecast {
    let engine = train(builder.dry_run(), run).expect("it fits").0;
    engine.forecast().expect("a step was planned")
}

/// Forward operations that run again, with their modules.
fn again(forecast: &Forecast) -> Vec<(&str, &str)> {
    let again = forecast
        .decisions
        .iter()
        .filter(|d| d.choice == Choice::Recompute);
    let mut list: Vec<_> = again
        .map(|d| (d.operation.as_str(), d.module.as_str()))
        .collect();
    list.sort_unstable();
    list
}

/// Budgets from the floor to plenty.
fn budgets(run: Run) -> Vec<u64> {
    let plenty = plan(PLENTY, run);
    let (floor, top) = (plenty.floor_bytes, plenty.peak_bytes);
    assert!(floor < top, "there is something to decide");
    (0..=6).map(|i| floor + (top - floor) * i / 6).collect()
}

/// The same bits as without pins, in every budget.
fn check_bits(run: Run) {
    let (_, plain) = train(Engine::builder(), plainly).unwrap();
    for budget in budgets(run) {
        let (_, bits) = train(Engine::builder().arena(budget), run).unwrap();
        assert!(bits == plain, "in {budget} bytes");
    }
}

fn plainly(blocks: &[Block], x: &Tensor) -> Result<Tensor> {
    blocks
        .iter()
        .try_fold(x.clone(), |x, block| block.forward(&x))
}

fn in_segments<const SEGMENTS: usize>(blocks: &[Block], x: &Tensor) -> Result<Tensor> {
    let forward = |block| move |x: &Tensor| Block::forward(block, x);
    checkpoint_sequential(blocks.iter().map(forward), SEGMENTS, x)
}

/// Gives the results of `gelu` one policy and all others another.
fn selectively(
    blocks: &[Block],
    x: &Tensor,
    gelu: CheckpointPolicy,
    others: CheckpointPolicy,
) -> Result<Tensor> {
    let policy = |name| if name == "gelu" { gelu } else { others };
    let run =
        |x: Tensor, block: &Block| checkpoint_with(|op| policy(op.name), |x| block.forward(x), &x);
    blocks.iter().try_fold(x.clone(), run)
}

fn must(blocks: &[Block], x: &Tensor) -> Result<Tensor> {
    selectively(
        blocks,
        x,
        CheckpointPolicy::MustRecompute,
        CheckpointPolicy::MustSave,
    )
}

fn prefer(blocks: &[Block], x: &Tensor) -> Result<Tensor> {
    selectively(
        blocks,
        x,
        CheckpointPolicy::PreferRecompute,
        CheckpointPolicy::PreferSave,
    )
}

fn must_save_gelu(blocks: &[Block], x: &Tensor) -> Result<Tensor> {
    selectively(
        blocks,
        x,
        CheckpointPolicy::MustSave,
        CheckpointPolicy::PreferSave,
    )
}

#[test]
fn the_last_segment_is_not_recomputed() {
    assert_eq!(again(&pinned(plainly)), []);
    assert_eq!(again(&pinned(in_segments::<1>)), []);
    let half = pinned(in_segments::<2>);
    assert_eq!(again(&half)[1], ("gelu", "h.[0-1].up"));
    let last = |&(_, module): &(&str, &str)| module.contains(['2', '3']);
    assert!(!again(&half).iter().any(last), "{:?}", again(&half));
    // Three segments of four functions: one, one, and two that are left.
    let thirds = pinned(in_segments::<3>);
    assert!(!again(&thirds).is_empty() && !again(&thirds).iter().any(last));
    assert!(half.peak_bytes < pinned(plainly).peak_bytes);
    check_bits(in_segments::<2>);
}

#[test]
fn segments_that_cannot_be_are_errors() {
    let runs: [Run; 2] = [in_segments::<0>, in_segments::<5>];
    for run in runs {
        let error = train(Engine::builder(), run).expect_err("no such segments");
        assert!(matches!(error, Error::Usage { .. }), "{error}");
        assert!(error.to_string().contains("of 4 functions"), "{error}");
        assert!(error.to_string().contains("checkpoints.rs"), "{error}");
    }
}

#[test]
fn what_must_be_is_so_in_every_plan() {
    for budget in budgets(must_save_gelu) {
        let plan = plan(budget, must_save_gelu);
        assert!(
            again(&plan).iter().all(|(op, _)| *op != "gelu"),
            "in {budget} bytes"
        );
    }
    // Saving all but one leaves nothing to decide: there is one plan.
    let plan = plan(PLENTY, must);
    assert_eq!(again(&plan), [("gelu", "h.[0-3].up")]);
    let (_, plain) = train(Engine::builder(), plainly).unwrap();
    let (_, bits) = train(Engine::builder().arena(plan.floor_bytes), must).unwrap();
    assert!(bits == plain);
}

#[test]
fn what_is_preferred_is_so_while_it_fits() {
    let demanded = plan(PLENTY, must);
    let free = plan(PLENTY, plainly);
    let preferred = plan(PLENTY, prefer);
    assert_eq!(again(&preferred), again(&demanded));
    assert_eq!(preferred.peak_bytes, demanded.peak_bytes);
    assert_eq!(preferred.floor_bytes, free.floor_bytes);
    assert!(free.floor_bytes < demanded.floor_bytes);
    let least = plan(free.floor_bytes, prefer);
    assert!(again(&least).iter().any(|(op, _)| *op == "linear"));
    check_bits(prefer);
}

#[test]
fn a_policy_sees_each_operation_once() {
    let engine = Engine::builder().build().unwrap();
    let up = Linear::new(&engine, 2, 3, true).unwrap();
    let x = engine.tensor(&[1.0, 2.0], [1, 2]).unwrap();
    let mut seen = Vec::new();
    let mut runs = 0;
    let policy = |op: &highwater::CheckpointedOp| {
        seen.push((
            op.name,
            op.module.clone(),
            op.inputs[0].to_string(),
            op.outputs[0].to_string(),
        ));
        CheckpointPolicy::PreferSave
    };
    let f = |x: &Tensor| {
        runs += 1;
        scope("m", || up.forward(x)?.gelu()?.mean())
    };
    let loss = checkpoint_with(policy, f, &x).unwrap();
    loss.backward().unwrap();
    loss.item().unwrap();
    let names: Vec<_> = seen
        .iter()
        .map(|(name, module, ..)| (*name, module.as_str()))
        .collect();
    assert_eq!(names[..2], [("linear", "m"), ("gelu", "m")]);
    assert_eq!(
        (seen[0].2.as_str(), seen[1].3.as_str()),
        ("[1, 2]", "[1, 3]")
    );
    assert_eq!(runs, 1);

    let inner = up.forward(&x).unwrap();
    let policy = |_: &highwater::CheckpointedOp| {
        inner.to_vec::<f32>().expect("it can be computed");
        CheckpointPolicy::MustSave
    };
    let f = |x: &Tensor| {
        drop(x.gelu()?);
        x.mul(x)?.mean()
    };
    let error = checkpoint_with(policy, f, &inner).expect_err("a node is gone");
    assert!(
        error
            .to_string()
            .contains("evaluated what it was asked about"),
        "{error}"
    );
}
