//! No step asks the system for memory of a tensor's size: all of it is in the arenas.

#![expect(unsafe_code, reason = "an allocator that counts is still an allocator")]

use highwater::nn::{CausalSelfAttention, LayerNorm, Linear};
use highwater::optim::{AdamW, AdamWOptions, Optimizer, clip_grad_norm_};
use highwater::{Engine, Module, Result, Tensor};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What counts as the size of a tensor; the model's activations are larger.
const TENSOR_BYTES: usize = 128 << 10;

static ARMED: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The sizes of the first few.
static SIZES: Mutex<[usize; 8]> = Mutex::new([0; 8]);

struct Counting;

fn count(bytes: usize) {
    if bytes >= TENSOR_BYTES && ARMED.load(Ordering::Relaxed) {
        let index = COUNT.fetch_add(1, Ordering::Relaxed);
        if let (Some(size), Ok(mut sizes)) = (Some(index).filter(|&i| i < 8), SIZES.lock()) {
            sizes[size] = bytes;
        }
    }
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
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
    assert_eq!(COUNT.swap(0, Ordering::Relaxed), 1);

    let first = step(false).unwrap();
    for read_early in [true, false, true] {
        step(read_early).unwrap();
    }
    ARMED.store(true, Ordering::Relaxed);
    for read_early in [false, true, false, true] {
        step(read_early).unwrap();
    }
    ARMED.store(false, Ordering::Relaxed);
    let sizes = *SIZES.lock().unwrap();
    assert_eq!(COUNT.load(Ordering::Relaxed), 0, "of {sizes:?} bytes");
    assert!(step(false).unwrap() < first);
}
