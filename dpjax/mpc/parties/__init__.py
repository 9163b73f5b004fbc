"""Programs of the parties of a multi-party study, which talk over TLS.

  owners   hold one record each; send once, through relays that learn nothing
  servers  hold shares and follow the protocol; up to `num_colluding` of them
           may pool what they see
  dealer   (two servers, joint noise) gives the servers keys for noise that no
           party knows; must not collude with a server
  client   sends queries and receives noisy counts

Whoever sets up the study creates all certificates and tokens, could impersonate
any party, and is trusted not to. An owner's message is authenticated, but its
content cannot be checked: an owner who breaks the protocol can change the
counts by any amount. The other owners' records stay secret whatever owners,
relays and clients do.

A study of a curve (`parameters`, `server`, `client`, `owners`) is one release.
A study of sums (`sum_parameters`, `sum_server`, `sum_client`, `sum_owners`)
opens a noisy sum of the owners' vectors in each of many rounds; it has no
dealer, and owners stay online.

Modules, in import order: agreement, parameters, sum_parameters, certificates,
channel, enrolment, storage, inbox, links, listening, wire, noising, server,
client, owners, setup, sum_server, sum_client, sum_owners.
"""
