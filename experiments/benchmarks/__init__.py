"""What steps, norms, memory, compiling and draws cost, beside the peers.

An instrument, not an experiment of a paper: `launch.benchmark` runs it, and it
is not in the registry. Rows are kept and resumed by the engine of the sweeps.

  architectures       networks as plain data, the same for JAX and PyTorch
  layers              single layers as plain data, for norms
  methods             names of what is measured, and what they need
  jax_nets, jax_steps, jax_peers, torch_nets, torch_steps, norms,
  loops, draws, estimators, quantiles, quantile_peers, curves, curve_peers,
  curve_solvers, densities, density_peers, parametric, replicas, butterflies
                      programs of the methods
  machine, program, worker, clients
                      a fresh process for each program, timed on request
  curve_work, density_work
                      what those of curves and densities are given
  checks, quantile_checks, curve_checks, density_checks
                      whether all of them compute the same
  sweep, run          which, and how
  values, quantile_findings, butterfly_findings, targets, findings, report
                      what came of it
"""
