"""Statistics that several parties compute together and none of them sees.

Owners of records split them among servers that are trusted not to collude, send
once and may leave; servers add and open sums with noise in them. No JAX: all is
integers modulo 2^k or a prime, of NumPy, and randomness comes from the system.

Who is trusted with what: everybody follows the protocol (semi-honest), and a
coalition of servers that is too small learns nothing but what is opened and who
took part. How long something takes is not hidden. Source: thesis 003, chapter 4
and section 6.4 (catalogue ecdf, EC-08, EC-13, EC-15 to EC-21).

Modules, in import order: prg, packing, additive, shamir, comparison, scheme,
schemes, noise, joint_noise, nodes, costs, evaluation, parties.
"""

__all__ = [
    'additive', 'comparison', 'costs', 'evaluation', 'joint_noise', 'nodes',
    'noise', 'packing', 'parties', 'prg', 'scheme', 'schemes', 'shamir'
]
