"""Benchmarks: time and memory of dpjax beside other libraries.

`launch.benchmark` runs them. They reproduce no paper, so they are not in the
registry of experiments; the engine of the sweeps stores and resumes their rows.

  architectures       networks as plain data, the same for JAX and PyTorch
  layers              single layers as plain data, for norms
  methods             names of the methods, and the packages they need
  network_names       networks of today as plain data, with their limits
  jax_nets, jax_steps, jax_peers, torch_nets, torch_steps, norms,
  loops, draws, estimators, quantiles, quantile_peers, curves, curve_peers,
  curve_solvers, densities, density_peers, parametric, replicas, butterflies,
  network_steps, network_peers, network_torch
                      programs of the methods
  networks, networks_base, networks_transformers, networks_images,
  networks_recurrent, networks_flax
                      networks of today in JAX and Flax
  machine, program, worker, clients
                      a fresh process for each program, timed on request
  curve_work, density_work
                      inputs of the programs of curves and densities
  network_work        counts the operations of a traced program
  checks, quantile_checks, curve_checks, density_checks, network_checks
                      checks that all methods compute the same
  sweep, run          settings, and their measurement
  values, quantile_findings, butterfly_findings, network_findings, targets,
  findings, report
                      tables and figures from the rows
"""
