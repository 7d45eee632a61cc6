//! No step asks the system for memory of a tensor's size: all of it is in the arenas. The exception
//! is what the library of matrix products packs an operand into, for the length of one product.

#![expect(unsafe_code, reason = "an allocator that counts is still an allocator")]

use highwater::nn::{CausalSelfAttention, LayerNorm, Linear};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, clip_grad_norm_};
use highwater::{Engine, Module, Result, Tensor};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What counts as the size of a tensor; the model's activations are larger.
const TENSOR_BYTES: usize = 128 << 10;

static ARMED: AtomicBool = AtomicBool::new(false);
/// Allocations of at least [`TENSOR_BYTES`], but for packing buffers.
static TENSORS: AtomicUsize = AtomicUsize::new(0);
/// Packing buffers: how many there were, and their bytes now and at most.
static PACKED: AtomicUsize = AtomicUsize::new(0);
static PACKING: AtomicUsize = AtomicUsize::new(0);
static PACKING_PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

/// The packing buffers are told by their alignment to a cache line, which Rust's collections never
/// ask for.
fn is_packing(layout: Layout) -> bool {
    layout.align() >= 64
}

fn count(layout: Layout) {
    if is_packing(layout) {
        let now = PACKING.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PACKING_PEAK.fetch_max(now, Ordering::Relaxed);
        PACKED.fetch_add(1, Ordering::Relaxed);
    } else if layout.size() >= TENSOR_BYTES && ARMED.load(Ordering::Relaxed) {
        TENSORS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is left to the system's allocator; memory is moved by the default `realloc`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        if is_packing(layout) {
            PACKING.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: usize = 4;
const LENGTH: usize = 64;
const WIDTH: usize = 192;

#[derive(Module)]
struct Block {
    ln_1: LayerNorm,
    attn: CausalSelfAttention,
    ln_2: LayerNorm,
    fc: Linear,
    proj: Linear,
}

impl Block {
    fn new(e: &Engine) -> Result<Self> {
        Ok(Self {
            ln_1: LayerNorm::new(e, WIDTH, 1e-5)?,
            attn: CausalSelfAttention::new(e, WIDTH, 4, 0.1)?,
            ln_2: LayerNorm::new(e, WIDTH, 1e-5)?,
            fc: Linear::new(e, WIDTH, 4 * WIDTH, true)?,
            proj: Linear::new(e, 4 * WIDTH, WIDTH, true)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.add(&self.attn.forward(&self.ln_1.forward(x)?)?)?;
        let hidden = self.fc.forward(&self.ln_2.forward(&x)?)?.gelu_tanh()?;
        x.add(&self.proj.forward(&hidden)?)
    }
}

/// Bytes of one of the model's activations.
const ACTIVATION_BYTES: usize = ROWS * LENGTH * WIDTH * size_of::<f32>();

#[test]
fn steps_allocate_no_tensors_outside_the_arenas() {
    const { assert!(ACTIVATION_BYTES > TENSOR_BYTES) };
    let engine = Engine::builder().threads(2).seed(1).build().unwrap();
    let blocks: Vec<Block> = (0..2).map(|_| Block::new(&engine).unwrap()).collect();
    let head = Linear::new(&engine, WIDTH, 512, false).unwrap();
    let parameters = [blocks.parameters(), head.parameters()].concat();
    let mut adamw = AdamW::new(parameters.clone(), AdamWOptions::default()).unwrap();
    let values: Vec<f32> = (0..ROWS * LENGTH * WIDTH)
        .map(|i| (i % 7) as f32 - 3.0)
        .collect();
    let labels: Vec<u32> = (0..ROWS * LENGTH).map(|i| i as u32 % 512).collect();
    let mut step = |read_early: bool| -> Result<f32> {
        let x = engine.tensor(&values, [ROWS, LENGTH, WIDTH])?;
        let y = engine.indices(&labels, [ROWS, LENGTH])?;
        let h = blocks.iter().try_fold(x, |x, block| block.forward(&x))?;
        let loss = h.linear_cross_entropy(&head.weight, &y)?;
        if read_early {
            loss.item()?;
        }
        loss.backward()?;
        clip_grad_norm_(&parameters, 1.0)?;
        adamw.step()?;
        loss.item()
    };
    // The counter counts.
    ARMED.store(true, Ordering::Relaxed);
    drop(std::hint::black_box(vec![1_u8; TENSOR_BYTES]));
    ARMED.store(false, Ordering::Relaxed);
    assert_eq!(TENSORS.swap(0, Ordering::Relaxed), 1);

    let first = step(false).unwrap();
    step(true).unwrap();
    PACKED.store(0, Ordering::Relaxed);
    // Each thread holds on to one.
    let held = PACKING.load(Ordering::Relaxed);
    PACKING_PEAK.store(held, Ordering::Relaxed);
    ARMED.store(true, Ordering::Relaxed);
    let packed = [false, true, false, true].map(|read_early| {
        step(read_early).unwrap();
        PACKED.swap(0, Ordering::Relaxed)
    });
    ARMED.store(false, Ordering::Relaxed);
    assert_eq!(TENSORS.load(Ordering::Relaxed), 0);
    // Packing buffers come and go with each product, no more of them in one step than in another,
    // and at no time more than the largest operand of a product takes.
    assert_eq!(packed, [packed[0]; 4]);
    assert_eq!(PACKING.load(Ordering::Relaxed), held);
    let largest = 4 * WIDTH * ROWS * LENGTH * size_of::<f32>();
    let peak = PACKING_PEAK.load(Ordering::Relaxed) - held;
    assert!(peak <= largest, "{peak} bytes for packing");
    assert!(step(false).unwrap() < first);
}
