//! What a graph refuses, and that it is as before then.

use super::{CellId, Graph, Operand, Phase, Site, Version};
use crate::Location;
use crate::{Backend, Category, Cost, DType, Effect, KernelId, Layout, Op, OpError, Spec};
use smallvec::SmallVec;
use std::hash::Hasher;
use std::sync::Arc;

/// An operation that is what a test makes of it.
#[derive(Debug, Clone)]
struct Toy {
    outputs: Vec<Spec>,
    writes: Vec<usize>,
    effect: Effect,
}

impl Op for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn hash_attributes(&self, _hasher: &mut dyn Hasher) {}

    fn infer(&self, _inputs: &[Spec]) -> Result<SmallVec<[Spec; 2]>, OpError> {
        Ok(self.outputs.iter().cloned().collect())
    }

    fn cost(&self, _inputs: &[Spec], _outputs: &[Spec], _threads: usize) -> Cost {
        Cost::default()
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn writes(&self) -> SmallVec<[usize; 4]> {
        self.writes.iter().copied().collect()
    }
}

fn makes(output: Spec) -> Toy {
    Toy {
        outputs: vec![output],
        writes: Vec::new(),
        effect: Effect::Pure,
    }
}

fn update(writes: &[usize]) -> Toy {
    Toy {
        outputs: Vec::new(),
        writes: writes.to_vec(),
        effect: Effect::WritesCell,
    }
}

fn f32s(shape: &[usize]) -> Spec {
    Spec::contiguous(DType::F32, shape)
}

fn site() -> Site {
    Site {
        module: "".into(),
        location: Location::caller(),
        phase: Phase::Forward,
        checkpoint: None,
        grad_enabled: true,
    }
}

fn add(graph: &mut Graph, op: Toy, inputs: &[Operand]) -> Result<(), OpError> {
    graph.add(Arc::new(op), inputs, &site()).map(|_| ())
}

fn cell(graph: &mut Graph, name: &str) -> (CellId, Operand) {
    let id = graph.add_cell(name, f32s(&[4, 4]), Category::Parameter, false);
    (id, graph.read_cell(id).unwrap())
}

/// Takes `F32` alone, and the overlap of inputs 1 and 0 if it says so.
#[derive(Debug)]
struct Kernels {
    overlaps: bool,
}

impl Backend for Kernels {
    fn find(&self, op: &dyn Op, inputs: &[Spec], _outputs: &[Spec]) -> Result<KernelId, OpError> {
        if inputs.iter().all(|input| input.dtype == DType::F32) {
            return Ok(KernelId::new(0));
        }
        Err(OpError::NoKernel {
            op: op.name(),
            device: "toy",
            dtypes: "others".to_owned(),
            known: "it has one for float32".to_owned(),
        })
    }

    fn may_overlap(&self, _kernel: KernelId, read: usize, written: usize) -> bool {
        self.overlaps && (read, written) == (1, 0)
    }
}

#[test]
fn a_second_operand_on_a_written_cell_is_refused_unless_the_kernel_takes_it() {
    let known = |overlaps| Graph::on(Arc::new(Kernels { overlaps }));
    let graphs = [
        (Graph::default(), false),
        (known(false), false),
        (known(true), true),
    ];
    for (mut graph, overlaps) in graphs {
        let (id, w) = cell(&mut graph, "w");
        let (_, v) = cell(&mut graph, "v");
        let transposed = w.with_layout(w.spec.layout.transpose(0, 1).unwrap());
        let row = w.with_layout(w.spec.layout.narrow(0, 1, 1).unwrap());
        for mut second in [w, transposed, row] {
            let w = graph.read_cell(id).unwrap();
            second.source = w.source;
            let before = graph.version(id);
            let answer = add(&mut graph, update(&[0]), &[w.clone(), second.clone()]);
            assert_eq!(answer.is_ok(), overlaps, "{answer:?}");
            assert_eq!(graph.version(id).since(before), u32::from(overlaps));
            let third = add(&mut graph, update(&[0]), &[w, v.clone(), second]);
            assert!(third.is_err(), "position 2 is never taken");
        }
        let w = graph.read_cell(id).unwrap();
        let error = add(&mut graph, update(&[1]), &[w.clone(), w]).unwrap_err();
        let text = "toy: input 0 reads w, which the node overwrites as input 1, and its kernel \
                    does not take that; give it a copy";
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn what_is_refused_leaves_the_graph_as_it_was() {
    let mut graph = Graph::default();
    let (id, w) = cell(&mut graph, "w");
    let value = graph.add_input(f32s(&[4, 4]), Category::Input);
    let mut pure = update(&[0]);
    pure.effect = Effect::Pure;
    for (op, inputs) in [
        (update(&[0, 1]), vec![w.clone(), value.clone()]),
        (update(&[0, 1]), vec![w.clone(), w.clone()]),
        (update(&[0, 7]), vec![w.clone()]),
        (pure, vec![w.clone()]),
    ] {
        let error = add(&mut graph, op, &inputs).unwrap_err();
        assert!(matches!(error, OpError::Shape { .. }), "{error}");
        assert_eq!(
            (graph.version(id), graph.nodes().len()),
            (Version::default(), 0)
        );
    }
    add(&mut graph, update(&[0]), &[w, value]).unwrap();
    let version = graph.version(id);
    assert_eq!(version, Version::default().next());
}

#[test]
fn operands_see_nothing_but_their_storage() {
    let mut graph = Graph::default();
    let (_, w) = cell(&mut graph, "w");
    let x = graph.add_input(f32s(&[4, 4]), Category::Input);
    let half = usize::MAX / 2 + 1;
    for operand in [w, x] {
        for layout in [
            Layout::contiguous([17]),
            Layout::strided([4], &[1], 13),
            Layout::strided([3], &[half], 0),
            Layout::strided([2], &[1], usize::MAX),
        ] {
            let op = makes(f32s(&[1]));
            let error = add(&mut graph, op, &[operand.with_layout(layout)]).unwrap_err();
            assert!(matches!(error, OpError::Shape { .. }), "{error}");
        }
        let mut other = operand.clone();
        other.spec.dtype = DType::F64;
        assert!(add(&mut graph, makes(f32s(&[1])), &[other]).is_err());
        add(&mut graph, makes(f32s(&[1])), &[operand]).unwrap();
    }
    let mut elsewhere = graph.add_input(f32s(&[1]), Category::Input);
    elsewhere.source = super::Source::Value(super::ValueId::new(99));
    assert!(add(&mut graph, makes(f32s(&[1])), &[elsewhere]).is_err());
}

#[test]
fn results_cover_their_storage() {
    let mut graph = Graph::default();
    for layout in [
        Layout::strided([3], &[0], 0),
        Layout::strided([3], &[2], 0),
        Layout::strided([3], &[1], 1),
        Layout::strided([2, 2], &[1, 1], 0),
    ] {
        let dtype = DType::F32;
        let error = add(&mut graph, makes(Spec { dtype, layout }), &[]).unwrap_err();
        assert!(error.to_string().contains("cover"), "{error}");
    }
    let absurd = makes(f32s(&[1 << 40, 1 << 40]));
    assert!(add(&mut graph, absurd, &[]).is_err());
    assert!(graph.nodes().is_empty() && graph.values().is_empty());
}

#[test]
fn what_no_kernel_takes_is_refused() {
    let mut graph = Graph::on(Arc::new(Kernels { overlaps: false }));
    let x = graph.add_input(Spec::contiguous(DType::BF16, [2]), Category::Input);
    let error = add(&mut graph, makes(f32s(&[2])), &[x]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "toy has no toy kernel for others; it has one for float32"
    );
    assert!(graph.nodes().is_empty());
}
