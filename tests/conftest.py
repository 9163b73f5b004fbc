"""Strict modes for every test: what is sloppy here fails here."""

import collections
import os
import pathlib
import subprocess
import sys


def _use_flag(name: str, value: str) -> None:
  """Passes a flag to XLA, which aborts at one it does not know.

  One that is set already is left alone: so workers get what their parent
  found out, and `XLA_FLAGS=--xla_cpu_use_fusion_emitters=true` tests what
  users have.
  """
  flags = os.environ.get('XLA_FLAGS', '')
  if name in flags:
    return
  flags = f'{flags} --{name}={value}'.strip()
  if not subprocess.run([sys.executable, '-c', 'import jax; jax.devices()'],
                        env={**os.environ, 'XLA_FLAGS': flags},
                        capture_output=True).returncode:
    os.environ['XLA_FLAGS'] = flags


# Before jax starts. Two host devices: nothing may rely on there being one.
# The older kernels of XLA on CPU take a third less time to compile, which is
# what most tests spend theirs on.
_use_flag('xla_force_host_platform_device_count', '2')
_use_flag('xla_cpu_use_fusion_emitters', 'false')

import jax  # noqa: E402
import pytest  # noqa: E402

jax.config.update('jax_numpy_dtype_promotion', 'strict')
jax.config.update('jax_numpy_rank_promotion', 'raise')
# Accelerators round the inputs of products, and tests compare to 1e-5.
jax.config.update('jax_default_matmul_precision', 'highest')

_QUICK = {'experiments', 'grads', 'launch', 'models', 'sparsity', 'stats',
          'train'}
_QUICK_FILES = {f'{name}_test' for name in (
    'battery', 'chain_bounds', 'inverse', 'k_norm', 'langevin', 'layers',
    'methods',
    'discriminators', 'local_sensitivity', 'shadow',
    'network', 'normalisation', 'other_losses', 'pointwise', 'pooling',
    'random_networks', 'reparametrisation', 'smooth')}


# Of these tables of cases the default run takes every so many-th; all are run
# with -m "slow or not slow".
_SOME = {
    'audit/methods_test.py::test_planted_faults_are_found': 8,
    'experiments/audits_test.py::test_showcases_are_refuted': 4,
    'experiments/benchmark_curves_test.py'
    '::test_releases_have_the_law_of_dpjax': 2,
    'experiments/benchmark_quantiles_test.py'
    '::test_ours_and_the_published_algorithms_have_one_law': 3,
    'experiments/benchmarks_test.py'
    '::test_a_suite_gives_rows_a_table_and_a_figure': 8,
    'experiments/ecdf_audits_test.py::test_honest_ones_are_not_refuted': 3,
    'grads/block_clipping_test.py::test_one_record_keeps_every_bound': 8,
    'grads/bookkeeping_test.py::test_functions': 7,
    'grads/convolutions_test.py::test_values_and_gradients_stay': 8,
    'grads/k_norm_privatizer_test.py::test_blocks_and_steps_are_independent': 3,
    'grads/precision_test.py'
    '::test_a_record_adds_its_clip_norm_at_most_and_all_of_it': 6,
    'grads/precision_test.py::test_norms_are_those_of_what_is_summed': 2,
    'launch/report_test.py::test_bad_input_is_one_line': 5,
    'launch/sweep_test.py::test_bad_input_is_one_line': 5,
    'launch/train_test.py::test_every_method_writes_what_its_claim_needs': 4,
    'lipschitz/bookkeeping_test.py'
    '::test_each_record_adds_its_clipped_gradient': 2,
    'lipschitz/bookkeeping_test.py::test_sums_are_those_of_the_reference': 2,
    'lipschitz/bounder_test.py'
    '::test_dividing_by_the_batch_maximum_is_not_bounded': 3,
    'lipschitz/chain_bounds_test.py::test_search_never_exceeds_the_bound': 3,
    'lipschitz/convolution_test.py::test_bounds_are_above_the_dense_svd': 4,
    'lipschitz/induced_test.py::test_conv_norms': 8,
    'lipschitz/k_norm_test.py::test_no_gradient_exceeds_its_bound': 2,
    'lipschitz/layers_test.py::test_constraint_and_certificate': 4,
    'lipschitz/layers_test.py::test_table_of_constants': 6,
    'lipschitz/norms_test.py::test_gaussian_512': 4,
    'lipschitz/other_losses_test.py::test_whole_gradients_keep_the_constant': 6,
    'lipschitz/pooling_test.py::test_windows_by_slices_are_those_of_xla': 4,
    'lipschitz/primitives_test.py::test_ghost_norms_are_true_norms': 12,
    'lipschitz/printed_test.py'
    '::test_one_record_moves_the_sum_by_more_than_is_claimed': 4,
    'lipschitz/random_networks_test.py'
    '::test_activations_stay_within_the_forward_bounds': 3,
    'lipschitz/random_networks_test.py'
    '::test_search_never_exceeds_the_bounds': 6,
    'privacy/accounting_refusals_test.py'
    '::test_repetition_counts_or_the_event_is_refused': 8,
    'privacy/accounting_test.py::test_calibrated_runs_keep_their_target': 4,
    'privacy/accounting_test.py'
    '::test_calibration_table_by_loss_distributions': 3,
    'privacy/accounting_test.py::test_calibration_table_by_renyi_orders': 2,
    'privacy/accounting_test.py'
    '::test_one_step_is_the_mixture_in_the_worse_direction': 2,
    'privacy/accounting_test.py::test_reference_table': 4,
    'privacy/additive_test.py::test_densities_keep_the_claim': 4,
    'privacy/battery_test.py::test_keys_decide_and_compilation_does_not': 9,
    'privacy/battery_test.py::test_releases_have_the_law': 2,
    'privacy/k_norm_test.py::test_norm_is_gamma': 4,
    'privacy/ordering_test.py::test_rows_and_single_ones_are_sorted': 4,
    'sampling_test.py::test_draw_equals_the_mask_of_the_key': 4,
    'stats/ecdf/smoothing_test.py'
    '::test_least_absolute_is_a_minimum_that_its_noise_attains': 5,
    'stats/ecdf/smoothing_test.py::test_least_squares_is_optimal': 5,
    'stats/ecdf/streams_test.py'
    '::test_killed_and_resumed_tells_the_same_bits': 2,
    'stats/density/hidden_test.py::test_errors_are_the_expected_ones': 2,
    'stats/density/laws_test.py::test_errors_are_those_of_the_curve': 4,
    'stats/hosmer_lemeshow_test.py'
    '::test_null_law_without_noise_is_chi_squared': 2,
    'stats/parametric/likelihood_study_test.py'
    '::test_closed_forms_are_what_is_released': 2,
    'stats/parametric/likelihood_study_test.py'
    '::test_no_lower_bound_is_above_the_linear_programme': 2,
    'stats/parametric/sgml_test.py::test_golden': 2,
    'stats/quantiles/exponential_quantiles_test.py'
    '::test_any_records_are_answered': 2,
    'stats/quantiles/joint_test.py::test_any_records_have_answers': 2,
    'stats/quantiles/joint_test.py::test_goldens': 3,
    'stats/quantiles/joint_test.py::test_laws_are_those_of_enumeration': 4,
    'stats/quantiles/recursive_quantiles_test.py'
    '::test_neighbours_differ_by_epsilon': 2,
    'train/adaptive_test.py::test_radii_are_of_the_step_before': 4,
    'train/checkpoint_test.py'
    '::test_killed_and_resumed_gives_the_bits_of_one_go': 4,
    'train/lipschitz_step_test.py::test_a_poisoned_record_is_as_if_absent': 3,
    'train/lipschitz_step_test.py::test_poisoned_records_leave_the_scales': 4,
    'train/mixed_precision_test.py'
    '::test_a_run_learns_and_is_kept_in_float32': 2,
    'train/step_test.py::test_steps_are_those_of_the_reference': 4,
    'stats/parametric/hidden_test.py::test_bounds_are_in_order': 3,
    'stats/parametric/hidden_test.py'
    '::test_no_budget_buys_nothing_and_a_large_one_all': 3,
    'release/statistics_test.py'
    '::test_population_intervals_of_means_cover_exactly': 2,
    'grads/lattice_privatizer_test.py::test_stddevs': 2,
    'release/statistics_test.py::test_intervals_cover': 3,
    'launch/estimate_test.py::test_figures': 3,
    'launch/estimate_test.py::test_every_statistic_is_released': 2,
    'release/curves_test.py::test_bands_cover': 2,
    'release/proportions_test.py'
    '::test_population_intervals_cover_and_no_outcome_is_spare': 2,
    'experiments/estimator_audits_test.py'
    '::test_records_move_what_the_budget_is_for': 3,
    'stats/roc_test.py'
    '::test_with_little_noise_it_is_the_curve_of_the_records': 3,
    'stats/roc_test.py::test_noisy_curves_rise_from_0_to_1': 2,
    'stats/density/laws_test.py::test_what_is_known_of_a_density_agrees': 2,
}


# What takes seconds by itself and has quicker relatives.
_RARE = {
    'audit/adaptive_test.py::test_contribution_of_the_canary_meets_both_bounds',
    'audit/adaptive_test.py::test_fault_bounds_at_a_smaller_radius_are_found',
    'audit/adaptive_test.py'
    '::test_fault_indicators_free_of_charge_are_found_by_the_loop',
    'audit/adaptive_test.py::test_fault_indicators_not_centred_are_found',
    'audit/adaptive_test.py'
    '::test_fault_indicators_not_centred_exceed_their_bound',
    'audit/adaptive_test.py'
    '::test_fault_indicators_of_balls_free_of_charge_are_found',
    'audit/adaptive_test.py::test_the_audit_finds_nothing_and_is_tight',
    'audit/methods_test.py::test_another_canary_is_within_its_bounds',
    'audit/methods_test.py'
    '::test_several_blocks_noised_as_one_are_found_by_the_loop',
    'audit/methods_test.py::test_the_audit_is_tight',
    'audit/methods_test.py::test_weights_from_other_norms_are_found',
    'audit/one_run_test.py'
    '::test_correcting_for_corners_of_the_hull_alone_is_wrong',
    'data/tfds_records_test.py::test_tensorflow_is_not_imported',
    'experiments/audits_test.py::test_a_game_of_losses_is_judged',
    'experiments/audits_test.py::test_bounds_cover_what_is_known',
    'experiments/audits_test.py::test_the_reference_is_refuted_by_nothing',
    'experiments/benchmark_programs_test.py'
    '::test_a_clip_norm_that_is_not_kept_is_found',
    'experiments/benchmark_programs_test.py'
    '::test_a_worker_answers_and_is_given_up',
    'experiments/benchmark_programs_test.py::test_a_worker_that_dies_says_why',
    'experiments/benchmark_programs_test.py::test_both_ways_to_norms_are_right',
    'experiments/benchmark_programs_test.py::test_steps_are_right',
    'experiments/benchmark_programs_test.py::test_wrong_steps_are_found',
    'experiments/benchmark_replicas_test.py'
    '::test_epochs_of_packs_follow_each_other',
    'experiments/benchmarks_test.py::test_the_loop_suite_times_whole_training',
    'experiments/canaries_test.py::test_wrong_labels_are_all_the_other_ones',
    'experiments/density_baselines_test.py::test_stress_end_to_end',
    'experiments/density_comparisons_test.py::test_adaptive_end_to_end',
    'experiments/ecdf_figures_test.py::test_hosmer_lemeshow_of_little_noise',
    'experiments/ecdf_figures_test.py::test_inverses_end_to_end',
    'experiments/ecdf_figures_test.py::test_other_programs_solve_our_problem',
    'experiments/ecdf_figures_test.py'
    '::test_roc_curves_of_little_noise_are_the_true_ones',
    'experiments/ecdf_figures_test.py::test_smoothing_end_to_end',
    'experiments/ecdf_figures_test.py::test_what_is_asked_anew_has_its_law',
    'experiments/estimator_audits_test.py::test_densities_keep_the_claim',
    'experiments/lip_depth_test.py'
    '::test_noise_of_the_averaged_update_is_z_delta_over_s',
    'experiments/lip_runtime_test.py'
    '::test_the_unit_is_timed_even_if_it_is_not_asked_for',
    'experiments/lip_search_test.py::test_the_search_is_charged',
    'experiments/price_normal_test.py::test_intervals_end_to_end',
    'experiments/privacy_curves_test.py::test_table_of_composition',
    'experiments/private_statistics_test.py::test_failures_of_queries',
    'experiments/private_statistics_test.py::test_polls',
    'experiments/quantile_audits_test.py::test_densities_are_those_of_releases',
    'experiments/quantile_audits_test.py::test_neighbours_come_near_the_claim',
    'experiments/quantile_figures_test.py'
    '::test_a_smoke_sweep_of_what_compiles_fast',
    'experiments/quantile_trials_test.py'
    '::test_what_is_read_off_for_many_orders_is_the_same_for_few',
    'experiments/search_test.py::test_finds_the_best_of_a_mixed_space',
    'experiments/training_test.py::test_every_option_runs_within_its_budget',
    'experiments/training_test.py::test_folds_are_trained_together',
    'experiments/training_test.py::test_runs_trained_together_equal_runs_alone',
    'experiments/training_test.py::test_the_plan_is_announced_before_training',
    'experiments/unsound_attack_test.py::test_audit_rows_of_both_methods',
    'experiments/unsound_attack_test.py::test_it_trains_and_is_caught',
    'experiments/unsound_attack_test.py'
    '::test_training_rows_say_that_epsilon_is_not_valid',
    'experiments/unsound_printed_test.py'
    '::test_clip_weights_uses_a_lower_bound_of_the_norm',
    'experiments/unsound_printed_test.py'
    '::test_e1_scaled_sums_are_those_of_the_adjacent_pair',
    'experiments/unsound_printed_test.py'
    '::test_scaled_sums_equal_the_sum_of_single_gradients',
    'experiments/unsound_test.py::test_constants_have_the_reference_ratio',
    'experiments/unsound_test.py'
    '::test_e1_one_poisson_step_exceeds_the_reference_bounds',
    'experiments/unsound_test.py::test_e2_one_step_of_four_blocks',
    'experiments/unsound_test.py::test_e2_reference_figures',
    'experiments/unsound_test.py::test_e2_square_root_of_k_is_attained',
    'experiments/unsound_test.py::test_e4_a_public_divisor_keeps_the_claim',
    'experiments/unsound_test.py::test_e4_reference_figures',
    'experiments/unsound_test.py'
    '::test_e5_costs_epsilon_where_batches_are_small',
    'experiments/unsound_test.py::test_figure_has_both_panels',
    'experiments/unsound_test.py'
    '::test_rows_of_the_printed_algorithm_are_marked',
    'experiments/unsound_test.py::test_table_and_verdicts',
    'grads/ball_test.py::test_gradient_is_finite_everywhere',
    'grads/block_clipping_test.py::test_masked_bad_and_other_records',
    'grads/bookkeeping_test.py::test_half_precision',
    'grads/bookkeeping_test.py::test_norms_are_public',
    'grads/bookkeeping_test.py::test_random_networks',
    'grads/bookkeeping_test.py::test_random_networks_in_bfloat16',
    'grads/convolutions_test.py::test_clipped_sums_have_fast_convolutions_only',
    'grads/convolutions_test.py::test_loops_hold_fast_convolutions_only',
    'grads/k_norm_privatizer_test.py::test_refuses_gaussian_noise_drawn_ahead',
    'grads/k_norm_privatizer_test.py'
    '::test_state_counts_and_remembers_the_smallest_multiplier',
    'grads/microbatches_test.py::test_parts_add_up_to_the_sums_of_all',
    'grads/privatizer_radii_test.py::test_drawn_ahead_is_the_same',
    'grads/privatizer_test.py::test_noise_drawn_ahead_is_the_same',
    'grads/privatizer_trees_test.py::test_any_tree_and_any_prefix',
    'grads/quantiles_test.py::test_settles_at_the_quantile',
    'launch/audit_test.py::test_scores_and_a_claim_that_they_cannot_reach',
    'launch/benchmark_test.py::test_rows_table_and_provenance_are_written',
    'launch/bounds_test.py::test_all_studies_on_the_command_line',
    'launch/cluster_test.py::test_bad_input_is_one_line',
    'launch/cluster_test.py::test_jobs_give_the_rows_of_one_process',
    'launch/estimate_test.py::test_bad_input_is_one_line_on_the_command_line',
    'launch/mpc_test.py::test_a_killed_server_is_named_and_the_study_goes_on',
    'launch/quantiles_test.py::test_the_command',
    'launch/resume_test.py::test_kill_nine_and_resume',
    'launch/sweep_test.py::test_killed_then_resumed_is_uninterrupted',
    'launch/train_test.py::test_a_folder_of_another_configuration_is_refused',
    'launch/train_test.py::test_comma_lists_sweep_into_folders_and_resume',
    'launch/train_test.py::test_delta_forms',
    'launch/train_test.py::test_methods_with_noise_of_their_own',
    'launch/train_test.py::test_noise_on_a_lattice',
    'launch/train_test.py::test_the_command_itself',
    'launch/train_test.py::test_the_printed_method_is_quarantined',
    'launch/train_test.py::test_what_cannot_run_is_refused_before_it_costs',
    'lipschitz/adaptive_test.py'
    '::test_counts_are_of_norms_before_the_projection',
    'lipschitz/bookkeeping_test.py::test_a_record_adds_the_same_in_any_company',
    'lipschitz/bookkeeping_test.py'
    '::test_sums_without_clipping_are_the_plain_gradient',
    'lipschitz/convolution_test.py'
    '::test_tight_where_images_are_large_beside_kernels',
    'lipschitz/induced_test.py::test_norms_compose',
    'lipschitz/layers_test.py::test_norms_of_constant_kernels',
    'lipschitz/network_test.py::test_block_with_normalisation',
    'lipschitz/normalisation_test.py::test_claim_fails_outside_l2',
    'lipschitz/normalisation_test.py'
    '::test_gradients_are_finite_where_a_group_is_constant',
    'lipschitz/normalisation_test.py::test_records_do_not_meet',
    'lipschitz/norms_test.py::test_complex_matrices',
    'lipschitz/norms_test.py'
    '::test_margin_of_large_matrices_knows_the_worst_spectrum',
    'lipschitz/norms_test.py::test_power_iteration_on_gaussian_512',
    'lipschitz/norms_test.py::test_svd_is_feasible',
    'lipschitz/primitives_test.py'
    '::test_plain_gradients_are_those_of_the_operation',
    'lipschitz/primitives_test.py'
    '::test_weighted_sums_are_those_of_gradients_of_single_records',
    'lipschitz/primitives_test.py::test_without_a_bias',
    'lipschitz/printed_test.py'
    '::test_the_maximum_is_that_of_all_records_of_convolutions_too',
    'lipschitz/random_networks_test.py::test_chain_rule',
    'lipschitz/reparametrisation_test.py'
    '::test_noise_is_added_in_the_weights_and_pulled_back',
    'lipschitz/rules_test.py::test_scaled_gradient_of_one_record',
    'models/mlp_test.py::test_equals_a_forward_pass_by_hand',
    'models/mlp_test.py::test_large_radii_are_no_radii',
    'privacy/accounting_refusals_test.py'
    '::test_calibration_refuses_bad_arguments',
    'privacy/accounting_test.py::test_epsilon_is_monotone',
    'privacy/accounting_test.py::test_what_truncating_batches_would_cost',
    'privacy/additive_test.py::test_a_traced_stddev_for_each_block',
    'privacy/additive_test.py::test_naive_noise_gives_the_value_away',
    'privacy/additive_test.py::test_no_noise_leaves_values_alone',
    'privacy/additive_test.py::test_releases_lie_on_the_grid',
    'privacy/additive_test.py::test_words_of_one_key_are_all_others',
    'privacy/algebra_test.py::test_concentration_of_known_mechanisms',
    'privacy/gaussian_mechanism_test.py'
    '::test_classical_noise_is_too_much_and_then_too_little',
    'privacy/gaussian_mechanism_test.py::test_keys_decide',
    'privacy/langevin_test.py'
    '::test_without_noise_it_descends_and_release_is_the_updates',
    'privacy/laplace_test.py::test_keys_decide',
    'privacy/local_test.py::test_a_forced_yes_has_no_epsilon',
    'privacy/ordering_test.py::test_rows_of_rows_and_mapped_rows',
    'privacy/queries_test.py::test_adaptive_queries_are_answered_and_no_more',
    'privacy/queries_test.py::test_answers_fail_as_rarely_as_stated',
    'privacy/queries_test.py::test_everybody_answers_once',
    'privacy/queries_test.py::test_values_outside_and_no_values_are_as_private',
    'release/classifiers_test.py::test_bands_and_intervals_cover',
    'release/classifiers_test.py::test_size_and_power_of_the_test',
    'release/densities_test.py::test_bands_cover',
    'release/splitting_test.py::test_drawn_cuts_have_the_law',
    'sampling_test.py::test_a_row_multiple_pads_and_draws_the_same_records',
    'sampling_test.py::test_vmap_over_keys',
    'stats/density/adaptive_test.py::test_a_density_of_a_column',
    'stats/density/adaptive_test.py'
    '::test_as_fine_as_specified_it_errs_as_specified',
    'stats/density/histograms_test.py::test_polygons_have_their_integrals',
    'stats/density/marginals_test.py::test_tables_are_consistent_densities',
    'stats/hosmer_lemeshow_test.py'
    '::test_calibration_intervals_cover_the_population',
    'stats/hosmer_lemeshow_test.py::test_level_and_power_with_noise',
    'stats/parametric/normal_means_test.py'
    '::test_coinpress_beats_one_round_and_ours_beats_coinpress',
    'stats/parametric/supports_test.py'
    '::test_a_quantile_near_the_top_recovers_the_rate',
    'stats/quantiles/api_test.py::test_atoms_are_found',
    'stats/quantiles/api_test.py::test_missing_values',
    'stats/quantiles/api_test.py::test_shapes_and_orders_are_those_of_numpy',
    'stats/quantiles/api_test.py'
    '::test_what_is_beyond_the_bounds_counts_as_them_and_is_said',
    'stats/quantiles/bounds_test.py'
    '::test_mechanisms_miss_no_more_often_than_the_theorems_allow',
    'stats/quantiles/exponential_quantiles_test.py'
    '::test_one_program_serves_a_sweep',
    'stats/quantiles/histogram_test.py::test_reference_errors',
    'stats/quantiles/independent_quantiles_test.py'
    '::test_points_follow_the_density',
    'stats/quantiles/recursive_quantiles_test.py'
    '::test_laws_of_few_orders_are_those_of_enumeration',
    'stats/quantiles/recursive_quantiles_test.py'
    '::test_many_orders_are_those_of_a_recursion',
    'stats/quantiles/recursive_quantiles_test.py'
    '::test_rows_of_any_length_hold_all_intervals',
    'stats/roc_bands_test.py::test_bands_cover_what_they_are_of',
    'train/adaptive_test.py::test_fault_radii_of_this_batch',
    'train/adaptive_test.py::test_radii_settle_in_a_run',
    'train/adaptive_test.py::test_the_loop_is_the_steps',
    'train/augment_test.py::test_certified_networks_bound_every_view',
    'train/augment_test.py::test_fault_views_clipped_one_by_one',
    'train/augment_test.py::test_in_the_loop',
    'train/averaging_test.py::test_kept_by_the_loop',
    'train/bassily_test.py::test_a_run_with_this_plan',
    'train/bassily_test.py::test_refuses_when_the_accountant_says_more',
    'train/checkpoint_test.py::test_a_state_of_another_form_is_refused',
    'train/checkpoint_test.py::test_another_configuration_is_refused',
    'train/checkpoint_test.py::test_faults_in_what_is_restored_are_seen',
    'train/evaluate_test.py::test_accuracy_by_hand',
    'train/lattice_test.py::test_a_fit_spends_what_its_plan_says',
    'train/loop_test.py::test_groups_of_runs_equal_all_at_once_by_one_program',
    'train/loop_test.py::test_learns',
    'train/mixed_precision_test.py::test_sums_are_close_to_those_of_float32',
    'train/newton_test.py'
    '::test_keys_of_both_noises_and_of_the_next_step_differ',
    'train/output_perturbation_test.py::test_fit_meets_its_target_exactly',
    'train/output_perturbation_test.py'
    '::test_release_is_the_solution_plus_this_noise',
    'train/output_perturbation_test.py::test_solver_is_as_near_as_it_charges',
    'train/plan_test.py::test_calibrated_epsilon_is_at_most_the_target',
    'train/post_processing_test.py::test_adam_is_post_processing',
    'train/post_processing_test.py::test_regulariser_is_after_the_noise',
    'train/replicas_test.py::test_parametrisations_mix_and_packs_may_be_larger',
}

# Of other tables of three cases or more in these folders it takes half.
_HALVED = ('audit/', 'data/', 'experiments/audits', 'experiments/benchmark',
           'experiments/canaries', 'experiments/density', 'experiments/ecdf',
           'experiments/quantile', 'experiments/unsound', 'grads/',
           'launch/audit', 'launch/benchmark', 'launch/cluster', 'launch/mpc',
           'launch/quantiles', 'launch/report', 'launch/sweep', 'launch/train',
           'lipschitz/', 'models/', 'mpc/', 'privacy/', 'sampling_test',
           'sparsity/', 'stats/ecdf/', 'stats/frequencies', 'stats/hosmer',
           'stats/quantiles/', 'train/')


def pytest_collection_modifyitems(items):
  """Marks what is left out of tables of cases as slow."""
  name = lambda item: item.nodeid.split('[')[0].removeprefix('tests/')
  kept = [item for item in items if item.get_closest_marker('slow') is None]
  sizes, seen = (collections.Counter(map(name, kept)), collections.Counter())
  for item in kept:
    table = name(item)
    half = table.startswith(_HALVED) and sizes[table] > 2
    if table in _RARE or seen[table] % _SOME.get(table, 2 if half else 1):
      item.add_marker(pytest.mark.slow)
    seen[table] += 1


@pytest.fixture(scope='module', autouse=True)
def quick_compilation(request):
  """What runs for an instant takes longer to optimise than to run.

  Certificates, norms of gradients, noise and audits are compiled as users
  have them.
  """
  path = pathlib.Path(request.path)
  folder = path.relative_to(pathlib.Path(__file__).parent).parts[0]
  jax.config.update('jax_disable_most_optimizations',
                    folder in _QUICK or path.stem in _QUICK_FILES)
  yield
  jax.config.update('jax_disable_most_optimizations', False)
