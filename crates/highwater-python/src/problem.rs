//! Problems, put together node by node. Each is checked as it is added, so that an error names the call
//! that was wrong, and what is refused leaves the problem as it was.

use crate::args::{LIMIT, Named, each, pairs, seconds, whole};
use highwater_plan::{self as planner, CellId, Effect, Home, Lane, Node, Pin, Tiers, ValueId};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use std::sync::Arc;

/// The way to host memory. Rates are bytes per second.
#[pyclass(module = "highwater", frozen, get_all)]
pub(crate) struct Link {
    bytes: u64,
    read: f64,
    write: f64,
    read_while_writing: f64,
    write_while_reading: f64,
    lost: f64,
}

#[pymethods]
impl Link {
    #[new]
    #[pyo3(signature = (bytes, read, write, *, read_while_writing=None, write_while_reading=None, lost=0.0))]
    fn new(
        bytes: &Bound<'_, PyAny>,
        read: f64,
        write: f64,
        read_while_writing: Option<f64>,
        write_while_reading: Option<f64>,
        lost: f64,
    ) -> PyResult<Link> {
        let rate = |rate: f64, what: &str| {
            if rate.is_finite() && rate > 0.0 {
                return Ok(rate);
            }
            let text = format!("{what} must be bytes per second, more than none, not {rate}");
            Err(PyValueError::new_err(text))
        };
        let both = read_while_writing.unwrap_or(read);
        let back = write_while_reading.unwrap_or(write);
        Ok(Link {
            bytes: whole(bytes, LIMIT - 1, "bytes")?,
            read: rate(read, "read")?,
            write: rate(write, "write")?,
            read_while_writing: rate(both, "read_while_writing")?,
            write_while_reading: rate(back, "write_while_reading")?,
            lost: seconds(lost, "lost")?,
        })
    }

    fn __repr__(&self) -> String {
        format!(
            "Link(bytes={}, read={:?}, write={:?}, read_while_writing={:?}, \
             write_while_reading={:?}, lost={:?})",
            self.bytes,
            self.read,
            self.write,
            self.read_while_writing,
            self.write_while_reading,
            self.lost
        )
    }
}

impl Link {
    fn tier(&self) -> planner::Link {
        planner::Link {
            bytes: self.bytes,
            read: self.read,
            write: self.write,
            read_while_writing: self.read_while_writing,
            write_while_reading: self.write_while_reading,
            lost: self.lost,
            writable: true,
        }
    }
}

/// What is known of a value beside what the planner is told.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The node that fills it.
    filled: Option<usize>,
    /// The first node that reads it.
    read: Option<usize>,
}

/// A step's graph.
#[pyclass(module = "highwater")]
pub(crate) struct Problem {
    /// Shared with the families and plans that were made for it.
    pub(crate) posed: Arc<planner::Problem>,
    known: Vec<Known>,
    /// Bytes of all that there is, as the planner adds them up.
    sum: u64,
}

/// What Python says of a node, before it is checked against the problem.
struct Said<'a, 'py> {
    inputs: &'a Bound<'py, PyAny>,
    outputs: &'a Bound<'py, PyAny>,
    seconds: f64,
    scratch_bytes: Option<&'a Bound<'py, PyAny>>,
    in_place: Option<&'a Bound<'py, PyAny>>,
    optional: Option<&'a Bound<'py, PyAny>>,
    rewrites: Option<&'a Bound<'py, PyAny>>,
    reads: Option<&'a Bound<'py, PyAny>>,
    writes: Option<&'a Bound<'py, PyAny>>,
    effect: &'a str,
    lane: &'a str,
}

/// Versions stay below this, so that the next one fits as well.
const VERSIONS: u64 = 1 << 31;

impl Said<'_, '_> {
    /// The node; what it names need not be there.
    fn node(&self, at: &str) -> PyResult<Node> {
        let values = |list, what: &str| -> PyResult<Vec<ValueId>> {
            let what = format!("{at}: {what}");
            let value = |v| Ok(ValueId::new(whole(&v, u64::from(u32::MAX), &what)? as usize));
            each(list, &what)?.into_iter().map(value).collect()
        };
        let inputs = values(self.inputs, "inputs")?;
        let outputs = values(self.outputs, "outputs")?;
        let output = |o: &Bound<'_, PyAny>, what: &str| position(o, outputs.len(), "output", what);
        let scratch = |bytes| whole(bytes, LIMIT - 1, &format!("{at}: scratch_bytes"));
        let mut node = Node::new(
            &inputs,
            &outputs,
            seconds(self.seconds, &format!("{at}: seconds"))?,
        );
        node.scratch_bytes = self.scratch_bytes.map_or(Ok(0), scratch)?;
        let what = format!("{at}: in_place");
        for (i, o) in pairs(self.in_place, &what)? {
            let input = position(&i, inputs.len(), "input", &what)?;
            node.in_place.push((input, output(&o, &what)?));
        }
        let what = format!("{at}: optional");
        for (o, saved) in pairs(self.optional, &what)? {
            let saved = seconds(saved.extract()?, &format!("{what}: seconds saved"))?;
            node.optional.push((output(&o, &what)?, saved));
        }
        let what = format!("{at}: rewrites");
        for i in self
            .rewrites
            .map_or(Ok(Vec::new()), |list| each(list, &what))?
        {
            node.rewrites
                .push(position(&i, inputs.len(), "input", &what)?);
        }
        node.reads = versions(self.reads, &format!("{at}: reads"))?;
        node.writes = versions(self.writes, &format!("{at}: writes"))?;
        node.effect = Effect::of(self.effect, &format!("{at}: effect"))?;
        node.lane = Lane::of(self.lane, &format!("{at}: lane"))?;
        Ok(node)
    }
}

/// A position in a node's inputs or outputs.
fn position(number: &Bound<'_, PyAny>, count: usize, of: &str, what: &str) -> PyResult<u32> {
    let position = whole(number, u64::from(u32::MAX), what)?;
    if position as usize >= count {
        return Err(PyValueError::new_err(format!(
            "{what} names {of} {position}, but the node has {count}: say positions in the node's \
             {of}s, counted from 0"
        )));
    }
    Ok(position as u32)
}

/// Cells and versions of them.
fn versions(list: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<Vec<(CellId, u32)>> {
    let listed = pairs(list, what)?.into_iter().map(|(cell, version)| {
        let cell = whole(&cell, u64::from(u32::MAX), &format!("{what}: cells"))?;
        let version = whole(&version, VERSIONS - 1, &format!("{what}: versions"))?;
        Ok((CellId::new(cell as usize), version as u32))
    });
    listed.collect()
}

/// What effects and optional outputs allow.
fn effect(node: &Node, at: &str) -> PyResult<()> {
    let wrong = |text: &str| Err(PyValueError::new_err(format!("{at}: {text}")));
    let fills = !node.outputs.is_empty() || !node.writes.is_empty() || node.scratch_bytes > 0;
    match node.effect {
        Effect::Guard if fills => {
            return wrong(
                "a guard has no outputs, writes or scratch memory: make those in another node",
            );
        }
        Effect::Repeatable if !node.writes.is_empty() => {
            return wrong("a node that writes a cell may not run again: say effect=\"once\"");
        }
        Effect::Once | Effect::Guard if !node.optional.is_empty() => {
            return wrong("only a repeatable node may leave outputs out");
        }
        _ => {}
    }
    let mut listed: Vec<u32> = node.optional.iter().map(|&(o, _)| o).collect();
    listed.sort_unstable();
    if listed.windows(2).any(|pair| pair[0] == pair[1]) {
        return wrong("optional names an output twice: name each once");
    }
    let saved: f64 = node.optional.iter().map(|&(_, saved)| saved).sum();
    // Rounding may leave a little less than nothing.
    if saved > node.seconds * (1.0 + 1e-9) {
        return wrong("leaving out all optional outputs saves more seconds than the node takes");
    }
    Ok(())
}

impl Problem {
    /// What has to be added to the bytes of all for something of so many bytes.
    fn more(&self, bytes: u64, at: &str) -> PyResult<u64> {
        let sum = self.sum + bytes + self.posed.align;
        if sum >= LIMIT {
            let text = format!("{at}: with {bytes} bytes more the problem has over 2**62 bytes");
            return Err(PyValueError::new_err(text));
        }
        Ok(sum)
    }

    /// Checks that a node's values are there, and filled when they are read.
    fn edges(&self, node: &Node, index: usize) -> PyResult<()> {
        let wrong = |text: String| Err(PyValueError::new_err(format!("node {index}: {text}")));
        let count = self.known.len();
        let inputs = node.inputs.iter().map(|v| (v.index(), "inputs"));
        let outputs = node.outputs.iter().map(|v| (v.index(), "outputs"));
        for (v, what) in inputs.chain(outputs) {
            if v >= count {
                return wrong(format!(
                    "{what} name value {v}, but there are {count}: add it with add_value first"
                ));
            }
        }
        for v in node.inputs.iter().map(|v| v.index()) {
            let outside = self.posed.values[v].home != Home::Arena;
            if self.known[v].filled.is_none() && !outside {
                return wrong(format!(
                    "inputs name value {v}, which no node fills yet: add the node that fills it \
                     before, or say home=\"external\" of a value that is there from the start"
                ));
            }
        }
        for (i, v) in node.outputs.iter().map(|v| v.index()).enumerate() {
            if matches!(self.posed.values[v].home, Home::Cell(_)) {
                return wrong(format!(
                    "outputs name value {v}, a cell, which is there from the start: name it in \
                     inputs, and its position there in rewrites"
                ));
            }
            if node.outputs[..i].iter().any(|other| other.index() == v) {
                return wrong(format!(
                    "outputs name value {v} twice: add a value for each"
                ));
            }
            if let Some(first) = self.known[v].filled {
                return wrong(format!(
                    "outputs name value {v}, which node {first} fills: add another value, as each \
                     is filled once"
                ));
            }
            let own = node.inputs.iter().any(|input| input.index() == v);
            if let Some(reader) = self.known[v].read.or(own.then_some(index)) {
                return wrong(format!(
                    "outputs name value {v}, which node {reader} reads: add another value, as each \
                     is filled before it is read"
                ));
            }
        }
        Ok(())
    }

    /// What a node overwrites where it is are cells, and it does so once.
    fn rewrites(&self, node: &Node, at: &str) -> PyResult<()> {
        let is_cell = |&i: &u32| {
            let value = node.inputs[i as usize].index();
            matches!(self.posed.values[value].home, Home::Cell(_))
        };
        if node.rewrites.iter().all(is_cell)
            && (node.rewrites.is_empty() || node.effect == Effect::Once)
        {
            return Ok(());
        }
        Err(PyValueError::new_err(format!(
            "{at}: rewrites name inputs that are cells, of a node with effect \"once\""
        )))
    }

    fn add(&mut self, node: Node) -> PyResult<usize> {
        let index = self.posed.nodes.len();
        let at = format!("node {index}");
        if index >= u32::MAX as usize {
            return Err(PyValueError::new_err(
                "a problem has fewer than 2**32 nodes",
            ));
        }
        self.edges(&node, index)?;
        effect(&node, &at)?;
        self.rewrites(&node, &at)?;
        self.sum = self.more(node.scratch_bytes, &at)?;
        for v in &node.inputs {
            self.known[v.index()].read.get_or_insert(index);
        }
        for v in &node.outputs {
            self.known[v.index()].filled = Some(index);
        }
        Arc::make_mut(&mut self.posed).nodes.push(node);
        Ok(index)
    }
}

/// What stands at an index.
fn at<'a, T>(list: &'a [T], index: &Bound<'_, PyAny>, what: &str) -> PyResult<&'a T> {
    let index = whole(index, u64::MAX, what)?;
    let found = usize::try_from(index).ok().and_then(|i| list.get(i));
    found.ok_or_else(|| {
        let count = list.len();
        PyIndexError::new_err(format!(
            "no {what} {index}: there are {count}, counted from 0"
        ))
    })
}

#[pymethods]
impl Problem {
    #[new]
    #[pyo3(signature = (*, align=None, host=None), text_signature = "(*, align=64, host=None)")]
    fn new(align: Option<&Bound<'_, PyAny>>, host: Option<&Bound<'_, Link>>) -> PyResult<Problem> {
        let align = align.map_or(Ok(planner::ALIGN), |align| whole(align, LIMIT, "align"))?;
        if !align.is_power_of_two() || align >= 1 << 30 {
            let text = format!("align must be a power of two below 2**30, not {align}");
            return Err(PyValueError::new_err(text));
        }
        let tiers = Tiers {
            host: host.map(|host| host.get().tier()),
            disk: None,
        };
        let posed = planner::Problem {
            tiers,
            align,
            ..planner::Problem::default()
        };
        Ok(Problem {
            posed: Arc::new(posed),
            known: Vec::new(),
            sum: 0,
        })
    }

    #[pyo3(signature = (bytes, *, home="arena", pin="free", wanted=false))]
    fn add_value(
        &mut self,
        bytes: &Bound<'_, PyAny>,
        home: &str,
        pin: &str,
        wanted: bool,
    ) -> PyResult<usize> {
        let index = self.known.len();
        let at = format!("value {index}");
        if index >= u32::MAX as usize {
            return Err(PyValueError::new_err(
                "a problem has fewer than 2**32 values",
            ));
        }
        let value = planner::Value {
            bytes: whole(bytes, LIMIT - 1, &format!("{at}: bytes"))?,
            home: Home::of(home, &format!("{at}: home"))?,
            pin: Pin::of(pin, &format!("{at}: pin"))?,
            wanted,
        };
        if matches!(value.home, Home::Cell(_)) && (wanted || self.posed.tiers.host.is_none()) {
            let text = format!("{at}: cells are for problems with host memory, and are not wanted");
            return Err(PyValueError::new_err(text));
        }
        self.sum = self.more(value.bytes, &at)?;
        self.known.push(Known::default());
        Arc::make_mut(&mut self.posed).values.push(value);
        Ok(index)
    }

    #[pyo3(
        signature = (
            inputs, outputs, seconds, *, scratch_bytes=None, in_place=None, optional=None,
            rewrites=None, reads=None, writes=None, effect="repeatable", lane="compute",
        ),
        text_signature = "($self, inputs, outputs, seconds, *, scratch_bytes=0, in_place=(), \
                          optional=(), rewrites=(), reads=(), writes=(), effect='repeatable', lane='compute')"
    )]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn add_node(
        slf: &Bound<'_, Self>,
        inputs: &Bound<'_, PyAny>,
        outputs: &Bound<'_, PyAny>,
        seconds: f64,
        scratch_bytes: Option<&Bound<'_, PyAny>>,
        in_place: Option<&Bound<'_, PyAny>>,
        optional: Option<&Bound<'_, PyAny>>,
        rewrites: Option<&Bound<'_, PyAny>>,
        reads: Option<&Bound<'_, PyAny>>,
        writes: Option<&Bound<'_, PyAny>>,
        effect: &str,
        lane: &str,
    ) -> PyResult<usize> {
        let said = Said {
            inputs,
            outputs,
            seconds,
            scratch_bytes,
            in_place,
            optional,
            rewrites,
            reads,
            writes,
            effect,
            lane,
        };
        // Lists may be made as they are read, and add values: nothing is borrowed meanwhile.
        let index = slf.try_borrow()?.posed.nodes.len();
        let node = said.node(&format!("node {index}"))?;
        slf.try_borrow_mut()?.add(node)
    }

    #[getter]
    fn node_count(&self) -> usize {
        self.posed.nodes.len()
    }

    #[getter]
    fn value_count(&self) -> usize {
        self.posed.values.len()
    }

    #[getter]
    fn align(&self) -> u64 {
        self.posed.align
    }

    fn value_bytes(&self, value: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(at(&self.posed.values, value, "value")?.bytes)
    }

    fn node_seconds(&self, node: &Bound<'_, PyAny>) -> PyResult<f64> {
        Ok(at(&self.posed.nodes, node, "node")?.seconds)
    }

    fn __repr__(&self) -> String {
        let (nodes, values) = (self.posed.nodes.len(), self.posed.values.len());
        format!("<highwater.Problem of {nodes} nodes and {values} values>")
    }
}
