// Complex w_m, s_m in exp(-t^2/4) = 2 Re sum_m w_m exp(-s_m t), t >= 0; value 1 and slope 0 at t = 0.
// docs/linear-time.md 3.2
//
// Made by tools/soe_gauss.py (multiprecision variable projection, then Lawson reweighting).
#pragma once

namespace sinkprop {

template <int P>
struct GaussCoefficients;

// 4 conjugate pairs: kernel accurate to 3.1e-08, derivative to 3.7e-07
template <>
struct GaussCoefficients<4> {
    static constexpr double s_re[4] = {1.73789286816820088e+00, 1.72330844231933167e+00, 1.69166497447791575e+00,
                                       1.63516580825801161e+00};
    static constexpr double s_im[4] = {3.24957115157980869e-01, 9.87487781085525484e-01, 1.69495910997287447e+00,
                                       2.51792681058704693e+00};
    static constexpr double w_re[4] = {2.83047087379784434e+00, -2.69213974386746058e+00, 3.67697491806777688e-01,
                                       -6.02862173716120150e-03};
    static constexpr double w_im[4] = {6.16508781618069612e+00, -8.17977310569326654e-01, -1.97288651334245196e-01,
                                       1.21452352283013005e-02};
};

// 8 conjugate pairs: kernel accurate to 7.8e-14, derivative to 2.0e-13
template <>
struct GaussCoefficients<8> {
    static constexpr double s_re[8] = {2.49224949273764018e+00, 2.48723597324724999e+00, 2.47701440975338016e+00,
                                       2.46116076577680953e+00, 2.43892688471732288e+00, 2.40900541801133583e+00,
                                       2.36886208989475344e+00, 2.31202953134497236e+00};
    static constexpr double s_im[8] = {2.33888330966356861e-01, 7.03981515557613347e-01, 1.18131542476184914e+00,
                                       1.67179834956937490e+00, 2.18344585927483648e+00, 2.72872218259329058e+00,
                                       3.33085875238849338e+00, 4.04941478475703320e+00};
    static constexpr double w_re[8] = {4.84918825384739449e+01,  -7.34758752609022281e+01, 2.86729359249132116e+01,
                                       -2.95501169499247096e+00, -2.82246281104618357e-01, 4.98062296917817782e-02,
                                       -1.49886434094812556e-03, 7.40826133306936024e-06};
    static constexpr double w_im[8] = {1.14803138142742640e+02,  -2.90364651755916618e+01, -1.22618625476614014e+01,
                                       6.74462899695662088e+00,  -9.25417715077283987e-01, 3.71737357444879638e-02,
                                       -2.19128064112467037e-04, -2.94541721218875205e-07};
};

}  // namespace sinkprop
