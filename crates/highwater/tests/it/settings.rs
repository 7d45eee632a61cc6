//! Settings of optimizers and layers that cannot be meant are refused where they are given, as PyTorch
//! refuses them, and change nothing.

use highwater::nn::{CausalSelfAttention, Dropout, LayerNorm};
use highwater::optim::{
    AdamW, AdamWOptions, Optimizer, Sgd, SgdOptions, clip_grad_norm_, grad_norm,
};
use highwater::{Engine, Error, Parameter};

/// What no setting may be.
const NEVER: [f64; 5] = [-1e-3, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e39];

fn with_gradient() -> Parameter {
    let engine = Engine::builder().threads(1).arena(1 << 20).build().unwrap();
    let weight = Parameter::new(&engine, [3], |own| own.copy_from_slice(&[3.0, 0.0, 4.0])).unwrap();
    let loss = weight.mul(&weight).unwrap().sum().unwrap();
    loss.backward().unwrap();
    weight
}

fn refused<T>(result: highwater::Result<T>, word: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{word} was taken"));
    assert!(
        matches!(error, Error::Usage { location, .. } if location.file().ends_with("settings.rs"))
    );
    assert!(error.to_string().contains(word), "{error}");
}

#[test]
fn adamw_refuses_settings_where_it_is_made() {
    let weight = with_gradient();
    let make = |options: AdamWOptions| AdamW::new(vec![weight.clone()], options);
    let default = AdamWOptions::default;
    for value in NEVER {
        refused(
            make(AdamWOptions {
                lr: value,
                ..default()
            }),
            "lr",
        );
        refused(
            make(AdamWOptions {
                eps: value,
                ..default()
            }),
            "eps",
        );
        refused(
            make(AdamWOptions {
                betas: (value, 0.9),
                ..default()
            }),
            "beta1",
        );
        refused(
            make(AdamWOptions {
                betas: (0.9, value),
                ..default()
            }),
            "beta2",
        );
        refused(
            make(AdamWOptions {
                weight_decay: value,
                ..default()
            }),
            "weight_decay",
        );
    }
    refused(
        make(AdamWOptions {
            betas: (1.0, 0.9),
            ..default()
        }),
        "beta1",
    );
    refused(
        make(AdamWOptions {
            betas: (0.9, 1.0),
            ..default()
        }),
        "beta2",
    );
    let zero = AdamWOptions {
        lr: 0.0,
        betas: (0.0, 0.0),
        eps: 0.0,
        weight_decay: 0.0,
        ..default()
    };
    make(zero).unwrap();
}

#[test]
fn sgd_refuses_settings_where_it_is_made() {
    let weight = with_gradient();
    let make = |options: SgdOptions| Sgd::new(vec![weight.clone()], options);
    let default = SgdOptions::default;
    for value in NEVER {
        refused(
            make(SgdOptions {
                lr: value,
                ..default()
            }),
            "lr",
        );
        refused(
            make(SgdOptions {
                momentum: value,
                ..default()
            }),
            "momentum",
        );
        refused(
            make(SgdOptions {
                dampening: value,
                ..default()
            }),
            "dampening",
        );
        refused(
            make(SgdOptions {
                weight_decay: value,
                ..default()
            }),
            "weight_decay",
        );
    }
    refused(
        make(SgdOptions {
            nesterov: true,
            ..default()
        }),
        "Nesterov",
    );
    let both = SgdOptions {
        nesterov: true,
        momentum: 0.9,
        dampening: 0.1,
        ..default()
    };
    refused(make(both.clone()), "Nesterov");
    make(SgdOptions {
        dampening: 0.0,
        ..both
    })
    .unwrap();
}

#[test]
fn what_is_set_later_is_refused_before_anything_is_updated() {
    let weight = with_gradient();
    let values = || weight.to_vec::<f32>().unwrap();
    let mut optimizer = Sgd::new(vec![weight.clone()], SgdOptions::default()).unwrap();
    for value in NEVER {
        refused(optimizer.set_lr(value), "lr");
        optimizer.groups_mut()[0].weight_decay = value;
        refused(optimizer.step(), "weight_decay");
        optimizer.groups_mut()[0].weight_decay = 0.0;
    }
    optimizer.groups_mut()[0].momentum = 0.9;
    refused(optimizer.step(), "momentum_buffer");
    optimizer.groups_mut()[0].momentum = 0.0;
    assert_eq!(values(), [3.0, 0.0, 4.0]);
    // The gradient is still there, and so is the rate.
    optimizer.set_lr(0.5).unwrap();
    optimizer.step().unwrap();
    assert_eq!(values(), [0.0; 3]);
}

#[test]
fn norms_that_clip_nothing_sensible_are_refused() {
    let weight = with_gradient();
    let own = std::slice::from_ref(&weight);
    for norm in [0.0, -0.0, -1.0, f64::NAN, f64::NEG_INFINITY, 1e-60] {
        refused(
            clip_grad_norm_(own, norm),
            "clip_grad_norm_: the norm must be",
        );
    }
    let norm = || grad_norm(own).unwrap().item().unwrap();
    assert_eq!(norm(), 10.0);
    let before = clip_grad_norm_(own, f64::INFINITY).unwrap();
    assert_eq!(before.item().unwrap(), 10.0);
    assert_eq!(norm(), 10.0);
    clip_grad_norm_(own, 5.0).unwrap();
    assert!((norm() - 5.0).abs() < 1e-4);
}

#[test]
fn layers_refuse_settings_where_they_are_made() {
    for p in [1.0, 1.5, -0.1, f64::NAN, f64::INFINITY] {
        refused(Dropout::new(p), "from 0 up and below 1");
    }
    Dropout::new(0.0).unwrap();
    let engine = Engine::builder().threads(1).arena(1 << 20).build().unwrap();
    // The last two are 0 and infinite in `f32`.
    for eps in [0.0, -1e-5, f64::NAN, f64::INFINITY, 1e-300, 1e39] {
        refused(
            LayerNorm::new(&engine, 4, eps),
            "eps must be a number above 0",
        );
    }
    refused(
        LayerNorm::new(&engine, 0, 1e-5),
        "the width must be at least 1",
    );
    LayerNorm::new(&engine, 4, 1e-5).unwrap();
    let attention = |width, heads, p| CausalSelfAttention::new(&engine, width, heads, p);
    for (width, heads) in [(8, 0), (8, 3), (0, 2)] {
        refused(attention(width, heads, 0.0), "a multiple of the heads");
    }
    refused(attention(8, 2, 1.0), "p, the probability");
}

#[test]
fn step_counts_are_as_many_as_parameters() {
    let mut optimizer = Sgd::new(vec![with_gradient()], SgdOptions::default()).unwrap();
    optimizer.set_step_counts(&[3]).unwrap();
    for counts in [&[][..], &[1, 2]] {
        refused(optimizer.set_step_counts(counts), "for 1 parameters");
        assert_eq!(optimizer.step_counts(), [3]);
    }
    optimizer.set_steps(5).unwrap();
    assert_eq!(optimizer.step_counts(), [5]);
}
