//! Makes a failing program small.

use crate::program::{Operand, Program, Statement, Var};

/// The smallest program that was found which still fails.
pub(crate) fn shrink(program: &Program, fails: &mut dyn FnMut(&Program) -> bool) -> Program {
    let mut best = program.clone();
    loop {
        let before = (best.statements.len(), best.to_string().len());
        statements(&mut best, fails);
        operands(&mut best, fails);
        numbers(&mut best, fails);
        attributes(&mut best, fails);
        parameters(&mut best, fails);
        if (best.statements.len(), best.to_string().len()) >= before {
            return best;
        }
    }
}

fn try_it(best: &mut Program, candidate: Program, fails: &mut dyn FnMut(&Program) -> bool) -> bool {
    let better = candidate != *best && fails(&candidate);
    if better {
        *best = candidate;
    }
    better
}

/// Without some statements, and without those that need them.
fn without(program: &Program, from: usize, count: usize) -> Program {
    let mut gone: Vec<Var> = Vec::new();
    let mut kept = program.clone();
    kept.statements.clear();
    for (at, statement) in program.statements.iter().enumerate() {
        let needs = statement.uses().iter().any(|var| gone.contains(var));
        if needs || (from..from + count).contains(&at) {
            gone.extend(statement.defines());
        } else {
            kept.statements.push(statement.clone());
        }
    }
    kept
}

fn statements(best: &mut Program, fails: &mut dyn FnMut(&Program) -> bool) {
    let mut count = best.statements.len().div_ceil(2);
    while count > 0 {
        let mut from = best.statements.len();
        while from > 0 {
            from = from.saturating_sub(count).min(best.statements.len());
            let candidate = without(best, from, count);
            try_it(best, candidate, fails);
            from = from.min(best.statements.len());
        }
        count /= 2;
    }
}

/// Uses of a tensor become uses of what that was made from.
fn operands(best: &mut Program, fails: &mut dyn FnMut(&Program) -> bool) {
    for at in (0..best.statements.len()).rev() {
        let Some(Statement::Apply { to, on, .. }) = best.statements.get(at).cloned() else {
            continue;
        };
        for source in on {
            let mut candidate = best.clone();
            for statement in &mut candidate.statements[at + 1..] {
                let uses = statement.operands_mut().into_iter();
                uses.filter(|operand| **operand == Operand::T(to))
                    .for_each(|operand| *operand = source);
            }
            let candidate = without(&candidate, at, 1);
            if try_it(best, candidate, fails) {
                break;
            }
        }
    }
}

/// Smaller extents, everywhere alike.
fn numbers(best: &mut Program, fails: &mut dyn FnMut(&Program) -> bool) {
    let mut extents: Vec<usize> = Vec::new();
    each_extent(&mut best.clone(), &mut |extent| extents.push(*extent));
    extents.sort_unstable();
    extents.dedup();
    for extent in extents.into_iter().rev().filter(|&extent| extent > 1) {
        for smaller in [1, 2, extent / 2, extent - 1] {
            let mut candidate = best.clone();
            each_extent(&mut candidate, &mut |other| {
                if *other == extent {
                    *other = smaller;
                }
            });
            if smaller < extent && smaller > 0 && try_it(best, candidate, fails) {
                break;
            }
        }
    }
}

fn each_extent(program: &mut Program, f: &mut dyn FnMut(&mut usize)) {
    use crate::program::Op;
    for parameter in &mut program.parameters {
        parameter.shape.iter_mut().for_each(&mut *f);
    }
    for statement in &mut program.statements {
        match statement {
            Statement::Input { shape, .. }
            | Statement::Labels { shape, .. }
            | Statement::Apply {
                op: Op::Expand(shape) | Op::Reshape(shape),
                ..
            } => {
                shape.iter_mut().for_each(&mut *f);
            }
            Statement::Apply {
                op: Op::Narrow { length, .. },
                ..
            } => f(length),
            _ => {}
        }
    }
}

/// Plain statements instead of special ones.
fn attributes(best: &mut Program, fails: &mut dyn FnMut(&Program) -> bool) {
    for at in 0..best.statements.len() {
        let mut candidate = best.clone();
        match &mut candidate.statements[at] {
            Statement::Apply { checkpoint, .. } => *checkpoint = None,
            Statement::Input { grad, .. } => *grad = false,
            Statement::StepKeepGrads(number) => {
                let number = *number;
                candidate.statements[at] = Statement::Step(number);
            }
            _ => continue,
        }
        try_it(best, candidate, fails);
        let mut candidate = best.clone();
        if let Some(Statement::Apply { no_grad, .. }) = candidate.statements.get_mut(at) {
            *no_grad = false;
            try_it(best, candidate, fails);
        }
    }
}

/// Without parameters and optimizers that nothing names, and with plain rules.
fn parameters(best: &mut Program, fails: &mut dyn FnMut(&Program) -> bool) {
    use crate::program::Rule;
    let plain = Rule::Sgd {
        lr: 0.5,
        momentum: 0.0,
        dampening: 0.0,
        weight_decay: 0.0,
        nesterov: false,
    };
    for number in (0..best.optimizers.len()).rev() {
        let mut candidate = best.clone();
        candidate.optimizers[number].rule = plain;
        try_it(best, candidate, fails);
        for slot in (0..best.optimizers[number].parameters.len()).rev() {
            let mut candidate = best.clone();
            candidate.optimizers[number].parameters.remove(slot);
            try_it(best, candidate, fails);
        }
        if number + 1 == best.optimizers.len() {
            let mut candidate = best.clone();
            candidate.optimizers.pop();
            try_it(best, candidate, fails);
        }
    }
    for number in (0..best.parameters.len()).rev() {
        let mut candidate = best.clone();
        let statements = candidate.statements.iter_mut();
        let named = statements
            .flat_map(Statement::parameters_mut)
            .any(|other| *other == number);
        let owned = candidate
            .optimizers
            .iter()
            .any(|o| o.parameters.contains(&number));
        if named || owned || candidate.parameters.len() == 1 {
            continue;
        }
        candidate.parameters.remove(number);
        for other in candidate
            .statements
            .iter_mut()
            .flat_map(Statement::parameters_mut)
        {
            *other -= usize::from(*other > number);
        }
        for other in candidate
            .optimizers
            .iter_mut()
            .flat_map(|o| &mut o.parameters)
        {
            *other -= usize::from(*other > number);
        }
        try_it(best, candidate, fails);
    }
}
