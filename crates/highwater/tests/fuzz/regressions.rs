//! Programs that once were answered wrongly, each on all kinds of engines.

use crate::compare::{check, expected, same};
use crate::config::{Config, PLAIN};
use crate::program::Program;

/// Runs a program in each way; panics where one is wrong.
fn everywhere(text: &str) {
    let program: Program = serde_json::from_str(text).expect("a program");
    let wanted = expected(&program).expect("a valid program");
    let (plain, most_bytes) =
        check(&program, &wanted, &PLAIN).unwrap_or_else(|failure| panic!("{failure}"));
    let mut configs = vec![
        Config {
            eager: true,
            ..PLAIN
        },
        Config {
            twin: true,
            threads: 2,
            ..PLAIN
        },
        Config {
            threads: 3,
            ..PLAIN
        },
    ];
    for percent in [60, 80, 100] {
        let tight = Config {
            arena: Some(most_bytes * percent / 100),
            ..PLAIN
        };
        configs.push(Config {
            host: true,
            ..tight.clone()
        });
        configs.push(Config {
            disk: true,
            ..tight.clone()
        });
        configs.push(tight);
    }
    for config in configs {
        let log = check(&program, &wanted, &config)
            .and_then(|(log, _)| same(&wanted, &config, &log, &plain));
        log.unwrap_or_else(|failure| panic!("{failure}"));
    }
}

macro_rules! regressions {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            everywhere(include_str!(concat!("regressions/", stringify!($name), ".json")));
        }
    )*};
}

regressions! {
    a_block_that_a_read_began,
    attention_of_no_heads,
    a_divided_number_is_not_a_reciprocal,
    a_gradient_is_forgotten_before_it_is_read,
    a_gradient_of_an_input_is_another_tensor,
    a_gradient_that_history_reads,
    a_gradient_that_history_reads_and_two_backwards,
    a_gradient_that_pending_history_reads,
    a_gradient_that_no_optimizer_takes_stays,
    a_held_gradient_stays_what_it_was,
    a_norm_is_of_what_is_pending,
    a_parameter_times_its_transpose,
    a_pending_result_beside_a_gradient_that_grows,
    a_product_of_parameters,
    a_shared_input_stays_what_it_was,
    a_view_without_gradient_requires_none,
    the_same_batch_twice,
    views_of_parameters_outlive_a_step,
}
